"""Operations of alerts: rules, evaluation, preview and notices."""
