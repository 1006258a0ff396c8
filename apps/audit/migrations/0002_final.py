from django.db import migrations

# The platform's own role owns the table, so privileges would not hold it back; a trigger does.
# What stands in `slipway.audit`, for one transaction, is the stated way around it:
# `retention` lets the operator's command forget old entries (manage.py prune_audit_log),
# `truncate` lets a restore and the emptying of a test database begin from nothing.
FORWARDS = """
CREATE FUNCTION audit_entry_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER audit_entry_is_final BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION audit_entry_is_final();
CREATE TRIGGER audit_entry_is_not_emptied BEFORE TRUNCATE ON audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION audit_entry_is_final();
"""
BACKWARDS = """
DROP TRIGGER audit_entry_is_not_emptied ON audit_entry;
DROP TRIGGER audit_entry_is_final ON audit_entry;
DROP FUNCTION audit_entry_is_final();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
