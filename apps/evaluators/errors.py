"""Errors of evaluators and their rules, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class BadEvaluator(errors.Invalid):
    code, detail = "bad_evaluator", "The evaluator is not valid."


class BadEvaluatorRule(errors.Invalid):
    code, detail = "bad_evaluator_rule", "The rule is not valid."


class EvaluatorNotFound(errors.NotFound):
    code, detail = "evaluator_not_found", "No such evaluator in the workspace."


class EvaluatorRuleNotFound(errors.NotFound):
    code, detail = "evaluator_rule_not_found", "No such rule in the workspace."


class EvaluatorInUse(errors.Conflict):
    code = "evaluator_in_use"
    detail = "Rules use the evaluator; delete them, or set `delete_run_rules`."


class TooManyEvaluators(errors.Conflict):
    code, detail = "too_many_evaluators", "The workspace has the maximum of evaluators."


class ValueMissing(errors.Invalid):
    """The run or its example lacks a value that the judge's prompt needs."""

    code, detail = "evaluator_value_missing", "The run lacks a value that the evaluator needs."


class BadJudgement(errors.AppError):
    """The model's reply is not the structured result that was asked for."""

    status, code, detail = 502, "bad_judgement", "The model's reply is not a valid result."


class BackfillRunning(errors.Conflict):
    code, detail = "backfill_running", "A backfill of the rule is running; cancel it, or wait."


class BackfillNotFound(errors.NotFound):
    code, detail = "backfill_not_found", "The rule has no backfill."


class BadCodeResult(errors.Invalid):
    """What the function of an evaluator returned is no score."""

    code, detail = "bad_code_result", "The function returned no score."


class TooManyTrials(errors.Conflict):
    code, detail = "too_many_trials", "The workspace tries the maximum of evaluators already."
