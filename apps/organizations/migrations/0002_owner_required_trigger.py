"""An organization keeps at least one owner, whichever statement changes its memberships.

Checked at the end of the transaction, so that an organization can be deleted and ownership
transferred. The organization's row is locked: two owners who leave at once are serialised.
"""

from django.db import migrations

CREATE = """
CREATE FUNCTION organizations_require_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM organizations_organization WHERE id = OLD.organization_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM organizations_membership
        WHERE organization_id = OLD.organization_id AND role = 'owner'
    ) THEN
        RAISE EXCEPTION 'organization % would have no owner', OLD.organization_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'organization_has_owner';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER organization_has_owner
    AFTER UPDATE OF role, organization_id OR DELETE ON organizations_membership
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.role = 'owner')
    EXECUTE FUNCTION organizations_require_owner();
"""

DROP = """
DROP TRIGGER organization_has_owner ON organizations_membership;
DROP FUNCTION organizations_require_owner();
"""


class Migration(migrations.Migration):
    dependencies = [("organizations", "0001_initial")]

    operations = [migrations.RunSQL(CREATE, DROP)]
