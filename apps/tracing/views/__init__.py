"""The pages of tracing, by subject: a view finds the caller, reads by `pages`, renders."""
