"""How runs write their events, how those are kept, and how readers get each of them once."""
