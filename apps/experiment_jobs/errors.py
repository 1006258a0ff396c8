"""Errors of experiment jobs, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class JobNotFound(errors.NotFound):
    code, detail = "experiment_job_not_found", "No such experiment job."


class JobFinished(errors.Conflict):
    code, detail = "experiment_job_finished", "The experiment job has already finished."


class JobNotResumable(errors.Conflict):
    """The job runs, has all its results, or ended so long ago that its steps are deleted."""

    code = "experiment_job_not_resumable"
    detail = "The experiment job runs, is complete, or ended more than a day ago."


class TooManyJobs(errors.Conflict):
    code = "too_many_experiment_jobs"
    detail = "The workspace has the maximum number of unfinished experiment jobs."


class NoExamples(errors.Invalid):
    code = "no_examples"
    detail = "The version of the dataset has no examples in these splits."


class TooManyRuns(errors.Invalid):
    code, detail = "too_many_experiment_runs", "The experiment would have too many runs."


class PlatformUsersRefused(errors.Conflict):
    """The agent's custom authentication is configured to refuse users of the platform."""

    code = "agent_refuses_platform_users"
    detail = "The agent accepts only its own users: `disable_studio_auth` is set."


class InputTooLarge(errors.Invalid):
    code, detail = "experiment_input_too_large", "The mapping makes the input of a run too large."


class TooManyNewRuns(errors.RateLimited):
    code = "too_many_new_experiment_runs"
    detail = "The workspace has started too many runs of experiments in the last day."


class InvalidMapping(errors.Invalid):
    code, detail = "invalid_input_mapping", "The input mapping is not valid."
