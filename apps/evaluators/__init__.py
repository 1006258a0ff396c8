"""Evaluators score runs: prompts on a model, bound by rules to experiments and traces."""
