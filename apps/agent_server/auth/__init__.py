"""Who may enter an agent, and what of it they may see."""
