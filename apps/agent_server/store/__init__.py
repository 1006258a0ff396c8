"""The store of agents: namespaces, filters and the SQL that services and the engine share."""
