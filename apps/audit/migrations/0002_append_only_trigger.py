from django.db import migrations

# The platform's role owns the table, so privileges cannot make it append-only; a trigger does.
# The setting `slipway.audit`, local to a transaction, permits two exceptions: `retention` lets
# `manage.py prune_audit_log` delete old entries, `truncate` lets a restore empty the table.
FORWARDS = """
CREATE FUNCTION audit_entry_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('slipway.audit', true) = 'retention' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'TRUNCATE' AND current_setting('slipway.audit', true) = 'truncate' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'The audit log is append-only: % is refused.', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_entry_append_only BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION audit_entry_append_only();
CREATE TRIGGER audit_entry_no_truncate BEFORE TRUNCATE ON audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION audit_entry_append_only();
"""
BACKWARDS = """
DROP TRIGGER audit_entry_no_truncate ON audit_entry;
DROP TRIGGER audit_entry_append_only ON audit_entry;
DROP FUNCTION audit_entry_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
