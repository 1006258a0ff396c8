"""An organization that has had an owner keeps one, whoever changes the rows.

Checked when a transaction ends, so that an organization can be removed and ownership handed over.
The organization's row is locked, so that two who leave at once do not each see the other.
"""

from django.db import migrations

MAKE = """
CREATE FUNCTION organizations_keep_owner() RETURNS trigger LANGUAGE plpgsql AS $$
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
    EXECUTE FUNCTION organizations_keep_owner();
"""

UNMAKE = """
DROP TRIGGER organization_has_owner ON organizations_membership;
DROP FUNCTION organizations_keep_owner();
"""


class Migration(migrations.Migration):
    dependencies = [("organizations", "0002_people_and_roles")]

    operations = [migrations.RunSQL(MAKE, UNMAKE)]
