"""The audit decision of each route that changes data: its action, or the reason for none.

A line is a method, a route and, after the arrow, the action or a reason in brackets.
"""
# ruff: noqa: E501 -- a decision is one line, so that a search shows it whole

REASONS = {
    "asks": "a query with a body: nothing changes",
    "work": "traces, feedback and other content, which records its own history",
    "view": "display preferences: charts, columns, saved filters",
    "stop": "work is ended early, and its row has the new status",
    "log": "a message is sent, which the log of deliveries has",
    "none": "nothing is changed: the request is refused or not stored",
    "mail": "an email is sent to the owner of the address; what its link does is audited",
    "tools": "a tool requests other routes, which record what they change",
    "self": "a step of sign-in or sign-out, whose end is audited",
    "invoice": "invoice details: the account's rows are billing's own record",
}

TABLE = """
post /account -> user.updated
post /account/again -> [self]
post /account/connections -> [self]
post /account/device -> key.created
post /account/device/done -> [none]
post /account/emails -> user.email_changed
post /account/oidc-sign-up -> user.signed_up
post /account/oidc/<str:provider_id> -> [self]
post /account/password -> user.password_changed
post /account/password/reset -> [mail]
post /account/password/reset/<word:uidb36>-<str:key> -> user.password_changed
post /account/password/set -> user.password_changed
post /account/recovery-codes/new -> user.second_factor_added
post /account/second-factor/again -> [self]
post /account/second-factor/code -> user.signed_in
post /account/second-factor/off -> user.second_factor_removed
post /account/second-factor/on -> user.second_factor_added
post /account/sessions -> user.session_revoked
post /account/sessions/<int:session_id>/end -> user.session_revoked
post /account/sign-in -> [self]
post /account/verify -> [none]
post /account/verify/<str:key> -> [self]
post /account/oidc/<str:provider_id>/callback -> user.signed_in
post /oauth/authorize -> key.created
post /oauth/device/code -> [self]
post /oauth/register -> [self]
post /oauth/token -> [self]
post /mcp -> [tools]
post /end-impersonation -> impersonation.ended
post /sign-in -> user.signed_in
post /sign-out -> user.signed_out
post /sign-up -> user.signed_up

post /api-key -> key.created
patch /api-key/<uuid:key_id> -> key.updated
delete /api-key/<uuid:key_id> -> key.revoked
post /api-key/<uuid:key_id>/rotate -> key.rotated
post /api-key/current -> key.created
patch /api-key/current/<uuid:key_id> -> key.updated
delete /api-key/current/<uuid:key_id> -> key.revoked
post /api-key/current/<uuid:key_id>/rotate -> key.rotated
post /orgs/current/service-keys -> key.created
patch /orgs/current/service-keys/<uuid:key_id> -> key.updated
delete /orgs/current/service-keys/<uuid:key_id> -> key.revoked
post /orgs/current/service-keys/<uuid:key_id>/rotate -> key.rotated
delete /orgs/current/personal-access-tokens/<uuid:key_id> -> key.revoked
post /o/<uuid:workspace_id>/settings/keys -> key.created
post /o/<uuid:workspace_id>/start -> key.created
post /o/<uuid:workspace_id>/start/agent -> deployment.created
post /o/<uuid:workspace_id>/start/sample -> [work]
post /o/<uuid:workspace_id>/start/steps -> [view]
post /o/<uuid:workspace_id>/settings/keys/personal -> key.created
post /o/<uuid:workspace_id>/settings/keys/organization -> key.created
post /o/<uuid:workspace_id>/settings/keys/<uuid:key_id>/revoke -> key.revoked
post /o/<uuid:workspace_id>/settings/keys/<uuid:key_id>/rotate -> key.rotated

post /orgs -> organization.created
post /organizations -> organization.created
patch /orgs/current -> organization.updated
patch /orgs/current/info -> organization.updated
patch /orgs/members/basic -> user.updated
post /orgs/current/members -> member.invited
post /orgs/current/members/batch -> member.invited
post /orgs/current/members/basic/batch -> member.added
patch /orgs/current/members/<uuid:membership_id> -> member.role_changed
delete /orgs/current/members/<uuid:membership_id> -> member.removed
delete /orgs/current/members/<uuid:invitation_id>/pending -> member.invitation_revoked
delete /orgs/current/members/pending/<uuid:invitation_id> -> member.invitation_revoked
post /orgs/current/roles -> role.created
patch /orgs/current/roles/<uuid:role_id> -> role.updated
delete /orgs/current/roles/<uuid:role_id> -> role.deleted
post /orgs/pending/<uuid:invitation_id>/claim -> member.invitation_accepted
delete /orgs/pending/<uuid:invitation_id> -> member.invitation_revoked
post /workspaces/pending/<uuid:invitation_id>/claim -> member.invitation_accepted
delete /workspaces/pending/<uuid:invitation_id> -> member.invitation_revoked
post /invitations/<str:token> -> member.invitation_accepted
post /workspaces -> workspace.created
post /tenants -> workspace.created
patch /workspaces/<uuid:workspace_id> -> workspace.updated
patch /tenants/<uuid:workspace_id> -> workspace.updated
delete /workspaces/<uuid:workspace_id> -> workspace.deleted
delete /tenants/<uuid:workspace_id> -> workspace.deleted
post /settings/handle -> workspace.updated
post /workspaces/current/members -> member.added
post /workspaces/current/members/batch -> member.added
patch /workspaces/current/members/<uuid:identity_id> -> member.role_changed
delete /workspaces/current/members/<uuid:identity_id> -> member.removed
delete /workspaces/current/members/<uuid:identity_id>/pending -> member.invitation_revoked
post /workspaces/current/secrets -> secret.set
put /workspaces/current/secrets/<str:secret_name> -> secret.set
delete /workspaces/current/secrets/<str:secret_name> -> secret.deleted
delete /workspaces/current/shared -> run.unshared
post /o/<uuid:workspace_id>/settings/general -> workspace.updated
post /o/<uuid:workspace_id>/settings/general/delete -> workspace.deleted
post /o/<uuid:workspace_id>/settings/workspaces -> workspace.created
post /o/<uuid:workspace_id>/settings/organization -> organization.updated
post /o/<uuid:workspace_id>/settings/organization/transfer-ownership -> organization.ownership_transferred
post /o/<uuid:workspace_id>/settings/organization/leave -> member.left
post /o/<uuid:workspace_id>/settings/organization/revoke-public-links -> run.unshared
post /o/<uuid:workspace_id>/settings/organization-members -> member.invited
post /o/<uuid:workspace_id>/settings/organization-members/<uuid:membership_id>/remove -> member.removed
post /o/<uuid:workspace_id>/settings/organization-members/<uuid:membership_id>/role -> member.role_changed
post /o/<uuid:workspace_id>/settings/members -> member.added
post /o/<uuid:workspace_id>/settings/members/<uuid:identity_id>/remove -> member.removed
post /o/<uuid:workspace_id>/settings/members/<uuid:identity_id>/role -> member.role_changed
post /o/<uuid:workspace_id>/settings/invitations/<uuid:invitation_id>/revoke -> member.invitation_revoked
post /o/<uuid:workspace_id>/settings/roles -> role.created
post /o/<uuid:workspace_id>/settings/roles/<uuid:role_id>/delete -> role.deleted
post /o/<uuid:workspace_id>/settings/secrets -> secret.set
post /o/<uuid:workspace_id>/settings/secrets/delete -> secret.deleted
post /o/<uuid:workspace_id>/settings/billing -> [invoice]
post /o/<uuid:workspace_id>/settings/audit/export -> audit.exported

post /workspaces/current/tag-keys -> tag.created
patch /workspaces/current/tag-keys/<uuid:tag_key_id> -> tag.updated
delete /workspaces/current/tag-keys/<uuid:tag_key_id> -> tag.deleted
post /workspaces/current/tag-keys/<uuid:tag_key_id>/tag-values -> tag.created
patch /workspaces/current/tag-keys/<uuid:tag_key_id>/tag-values/<uuid:tag_value_id> -> tag.updated
delete /workspaces/current/tag-keys/<uuid:tag_key_id>/tag-values/<uuid:tag_value_id> -> tag.deleted
post /workspaces/current/taggings -> tag.put_on
delete /workspaces/current/taggings/<uuid:tagging_id> -> tag.taken_off
post /workspaces/current/tags/resources -> [asks]
post /o/<uuid:workspace_id>/settings/tags -> tag.created
post /o/<uuid:workspace_id>/settings/tags/<uuid:tag_key_id>/delete -> tag.deleted
post /o/<uuid:workspace_id>/settings/tags/<uuid:tag_key_id>/values -> tag.created
post /o/<uuid:workspace_id>/settings/tags/<uuid:tag_key_id>/values/<uuid:tag_value_id>/delete -> tag.deleted

put /usage-limits -> usage_limit.set
delete /usage-limits/<uuid:limit_id> -> usage_limit.deleted
put /usage-limits/org -> usage_limit.set
delete /usage-limits/org/<uuid:limit_id> -> usage_limit.deleted
post /o/<uuid:workspace_id>/settings/usage -> usage_limit.set
post /o/<uuid:workspace_id>/settings/usage/<uuid:limit_id>/delete -> usage_limit.deleted
put /ttl-settings -> retention.changed
put /orgs/ttl-settings -> retention.changed
put /orgs/current/ttl-settings -> retention.changed
put /workspaces/current/ttl-settings -> retention.changed
post /o/<uuid:workspace_id>/settings/retention -> retention.changed
post /model-price-map -> price.changed
put /model-price-map/<uuid:price_id> -> price.changed
delete /model-price-map/<uuid:price_id> -> price.changed
post /o/<uuid:workspace_id>/settings/prices -> price.changed
post /o/<uuid:workspace_id>/settings/prices/<uuid:price_id>/delete -> price.changed

post /sessions -> [work]
delete /sessions -> project.deleted
patch /sessions/<uuid:project_id> -> retention.changed
delete /sessions/<uuid:project_id> -> project.deleted
post /v2/sessions -> [work]
post /datasets/upload-experiment -> dataset.created
post /annotation-queues -> annotation_queue.created
delete /annotation-queues -> annotation_queue.deleted
patch /annotation-queues/<uuid:queue_id> -> annotation_queue.updated
delete /annotation-queues/<uuid:queue_id> -> annotation_queue.deleted
post /annotation-queues/populate -> [work]
post /annotation-queues/<uuid:queue_id>/export -> [asks]
post /annotation-queues/<uuid:queue_id>/runs -> [work]
post /annotation-queues/<uuid:queue_id>/runs/by-key -> [work]
post /annotation-queues/<uuid:queue_id>/runs/delete -> [work]
patch /annotation-queues/<uuid:queue_id>/runs/<uuid:queue_item_id> -> [work]
delete /annotation-queues/<uuid:queue_id>/runs/<uuid:queue_item_id> -> [work]
post /annotation-queues/status/<uuid:queue_item_id> -> [work]
post /v1/platform/annotation-queues/items/<uuid:queue_item_id>/status -> [work]
post /v1/platform/annotation-queues/<uuid:queue_id>/items -> [work]
post /v1/platform/annotation-queues/<uuid:queue_id>/items/delete -> [work]
patch /v1/platform/annotation-queues/<uuid:queue_id>/items/<uuid:queue_item_id> -> [work]
post /v1/platform/annotation-queues/<uuid:queue_id>/reviewers -> annotation_queue.updated
delete /v1/platform/annotation-queues/<uuid:queue_id>/reviewers/<uuid:identity_id> -> annotation_queue.updated
post /o/<uuid:workspace_id>/annotation/new -> annotation_queue.created
post /o/<uuid:workspace_id>/annotation/add -> annotation_queue.created
post /o/<uuid:workspace_id>/annotation/<uuid:queue_id>/settings -> annotation_queue.updated
post /o/<uuid:workspace_id>/annotation/<uuid:queue_id>/delete -> annotation_queue.deleted
post /o/<uuid:workspace_id>/annotation/<uuid:queue_id>/i/<uuid:queue_item_id>/reserve -> [work]
post /o/<uuid:workspace_id>/annotation/<uuid:queue_id>/i/<uuid:queue_item_id>/score -> [work]
post /o/<uuid:workspace_id>/annotation/<uuid:queue_id>/i/<uuid:queue_item_id>/done -> [work]
post /o/<uuid:workspace_id>/annotation/<uuid:queue_id>/i/<uuid:queue_item_id>/skip -> [work]
post /datasets/comparative -> [work]
post /datasets/<uuid:dataset_id>/experiment-jobs -> experiment.started
post /experiment-jobs/<uuid:job_id>/cancel -> experiment.cancelled
post /experiment-jobs/<uuid:job_id>/resume -> experiment.resumed
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/experiments/run -> experiment.started
post /o/<uuid:workspace_id>/experiment-jobs/<uuid:job_id>/cancel -> experiment.cancelled
delete /datasets/comparative/<uuid:comparison_id> -> comparison.deleted
post /datasets/<uuid:dataset_id>/runs -> [asks]
post /datasets/<uuid:dataset_id>/runs/delta -> [asks]
post /datasets/<uuid:dataset_id>/group/runs -> [asks]
post /datasets/<uuid:dataset_id>/experiments/grouped -> [asks]
post /v2/datasets/<uuid:dataset_id>/experiment-runs -> [asks]
post /datasets -> dataset.created
delete /datasets -> dataset.deleted
patch /datasets/<uuid:dataset_id> -> dataset.updated
delete /datasets/<uuid:dataset_id> -> dataset.deleted
put /datasets/<uuid:dataset_id>/tags -> dataset.tagged
put /datasets/<uuid:dataset_id>/splits -> [work]
put /datasets/<uuid:dataset_id>/share -> dataset.shared
delete /datasets/<uuid:dataset_id>/share -> dataset.unshared
post /datasets/<uuid:dataset_id>/restore -> dataset.restored
post /datasets/clone -> [work]
post /datasets/<uuid:dataset_id>/index -> [work]
delete /datasets/<uuid:dataset_id>/index -> [work]
post /datasets/<uuid:dataset_id>/index/sync -> [work]
post /datasets/<uuid:dataset_id>/search -> [asks]
post /datasets/upload -> dataset.created
post /datasets/upload/preview -> [asks]
post /examples/upload/<uuid:dataset_id> -> [work]
post /examples -> [work]
delete /examples -> [work]
post /examples/validate -> [asks]
post /examples/validate/bulk -> [asks]
post /examples/bulk -> [work]
patch /examples/bulk -> [work]
patch /examples/<uuid:example_id> -> [work]
delete /examples/<uuid:example_id> -> [work]
post /v1/platform/examples/multipart -> [work]
post /v1/platform/datasets/examples/delete -> examples.erased
post /v1/platform/datasets/<uuid:dataset_id>/examples -> [work]
patch /v1/platform/datasets/<uuid:dataset_id>/examples -> [work]
patch /v1/platform/datasets/<uuid:dataset_id>/examples/metadata -> [work]
delete /v1/platform/datasets/<uuid:dataset_id>/examples/<uuid:example_id> -> [work]
patch /v2/sessions/<uuid:project_id> -> retention.changed
post /o/<uuid:workspace_id>/projects/delete -> project.deleted
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/delete -> project.deleted
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/tags -> tag.put_on
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/settings -> retention.changed
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/selected -> traces.deleted
post /runs/delete -> traces.deleted
post /runs/delete/traces -> traces.deleted
put /runs/<uuid:run_id>/share -> run.shared
delete /runs/<uuid:run_id>/share -> run.unshared
post /v2/runs/<uuid:run_id>/share -> run.shared
delete /v2/runs/<uuid:run_id>/share -> run.unshared
post /v2/threads/<path:thread_key>/share -> run.shared
delete /v2/threads/<path:thread_key>/share -> run.unshared
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/r/<uuid:run_id>/share -> run.shared
post /repos -> prompt.created
patch /repos/<str:owner>/<str:repo> -> prompt.updated
delete /repos/<str:owner>/<str:repo> -> prompt.deleted
post /likes/<str:owner>/<str:repo> -> [work]
post /commits/<str:owner>/<str:repo> -> [work]
post /repos/<str:owner>/<str:repo>/tags -> prompt_tag.set
patch /repos/<str:owner>/<str:repo>/tags/<str:tag_name> -> prompt_tag.set
delete /repos/<str:owner>/<str:repo>/tags/<str:tag_name> -> prompt_tag.deleted
delete /v1/platform/hub/repos/<str:owner>/<str:repo>/directories -> prompt.deleted
post /v1/platform/hub/repos/<str:owner>/<str:repo>/directories/commits -> [work]

post /playground-settings -> [work]
patch /playground-settings/<uuid:playground_settings_id> -> [work]
delete /playground-settings/<uuid:playground_settings_id> -> [work]
post /prompts/invoke_prompt -> [work]
post /prompts/canvas -> [work]
post /generate -> [work]
post /runs/generate-query -> [work]
post /datasets/playground_experiment/batch -> experiment.started
post /datasets/playground_experiment/stream -> experiment.started
post /datasets/studio_experiment -> experiment.started
post /o/<uuid:workspace_id>/playground/stream -> [work]
post /o/<uuid:workspace_id>/playground/messages -> [asks]
post /o/<uuid:workspace_id>/playground/tools/call -> [work]
put /o/<uuid:workspace_id>/playground/draft -> [view]
delete /o/<uuid:workspace_id>/playground/draft -> [view]
post /o/<uuid:workspace_id>/playground/shares -> [view]
delete /o/<uuid:workspace_id>/playground/shares/<uuid:share_id> -> [view]
post /o/<uuid:workspace_id>/playground/commits -> prompt.created
post /o/<uuid:workspace_id>/playground/experiments -> experiment.started
post /o/<uuid:workspace_id>/playground/experiments/estimate -> [asks]
post /o/<uuid:workspace_id>/playground/experiments/<uuid:job_id>/cancel -> experiment.cancelled
post /o/<uuid:workspace_id>/playground/experiments/<uuid:job_id>/resume -> experiment.resumed
post /o/<uuid:workspace_id>/prompts/new -> prompt.created
post /o/<uuid:workspace_id>/prompts/p/<str:repo>/edit -> [work]
post /o/<uuid:workspace_id>/prompts/p/<str:repo>/commits/<str:commit>/tags -> prompt_tag.set
post /o/<uuid:workspace_id>/prompts/p/<str:repo>/settings -> prompt.updated
post /o/<uuid:workspace_id>/prompts/p/<str:repo>/delete -> prompt.deleted
post /o/<uuid:workspace_id>/datasets/new -> dataset.created
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/experiments/baseline -> dataset.updated
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/experiments/e/<uuid:project_id>/edit -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/experiments/e/<uuid:project_id>/delete -> project.deleted
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/experiments/pairwise/<uuid:comparison_id>/delete -> comparison.deleted
post /o/<uuid:workspace_id>/datasets/import -> dataset.created
post /o/<uuid:workspace_id>/datasets/import/<uuid:import_id> -> [stop]
post /o/<uuid:workspace_id>/datasets/add -> dataset.created
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/import -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/settings -> dataset.updated
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/delete -> dataset.deleted
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/undelete -> dataset.restored
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/link -> dataset.shared
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/versions/tags -> dataset.tagged
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/similar/index -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/selected -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/restored-examples -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/new-example -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/e/<uuid:example_id>/edit -> [work]
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/e/<uuid:example_id>/delete -> [work]
post /o/<uuid:workspace_id>/settings/prompt-webhooks -> prompt_webhook.created
post /o/<uuid:workspace_id>/settings/prompt-webhooks/<uuid:webhook_id>/secret -> prompt_webhook.updated
post /o/<uuid:workspace_id>/settings/prompt-webhooks/<uuid:webhook_id>/delete -> prompt_webhook.deleted
post /prompt-webhooks -> prompt_webhook.created
patch /prompt-webhooks/<uuid:webhook_id> -> prompt_webhook.updated
delete /prompt-webhooks/<uuid:webhook_id> -> prompt_webhook.deleted
post /prompt-webhooks/<uuid:webhook_id>/secret -> prompt_webhook.updated
post /prompt-webhooks/test -> [asks]
post /prompt-webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/replay -> [log]
post /o/<uuid:workspace_id>/settings/prompt-webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/replay -> [log]
post /bulk-exports -> export.created
patch /bulk-exports/<uuid:export_id> -> [stop]
post /bulk-exports/destinations -> export_destination.created
patch /bulk-exports/destinations/<uuid:destination_id> -> export_destination.updated
post /o/<uuid:workspace_id>/exports/new -> export.created
post /o/<uuid:workspace_id>/exports/destinations/new -> export_destination.created
post /o/<uuid:workspace_id>/exports/destinations/<uuid:destination_id> -> export_destination.updated
post /o/<uuid:workspace_id>/exports/<uuid:export_id>/cancel -> [stop]

post /v2/deployments -> deployment.created
delete /v2/deployments -> deployment.deleted
patch /v2/deployments/<uuid:deployment_id> -> deployment.updated
delete /v2/deployments/<uuid:deployment_id> -> deployment.deleted
post /v2/deployments/<uuid:deployment_id>/revisions -> revision.created
post /v2/deployments/<uuid:deployment_id>/revisions/<uuid:revision_id>/interrupt -> revision.interrupted
post /v2/deployments/<uuid:deployment_id>/revisions/<uuid:revision_id>/redeploy -> deployment.rolled_back
post /v2/deployments/<uuid:deployment_id>/stop -> deployment.stopped
post /v2/deployments/<uuid:deployment_id>/start -> deployment.started
post /v2/deployments/<uuid:deployment_id>/restart -> deployment.restarted
post /v2/deployments/<uuid:deployment_id>/webhook-secret -> deployment.webhook_secret_replaced
post /v2/deployments/<uuid:deployment_id>/push-token -> [none]
post /v2/deployments/<uuid:deployment_id>/upload-url -> [none]
post /v1/platform/deployment-webhooks -> deployment_webhook.created
patch /v1/platform/deployment-webhooks/<uuid:deployment_webhook_id> -> deployment_webhook.updated
delete /v1/platform/deployment-webhooks/<uuid:deployment_webhook_id> -> deployment_webhook.deleted
post /v1/platform/deployment-webhooks/<uuid:deployment_webhook_id>/secret -> deployment_webhook.updated
post /v1/platform/deployment-webhooks/<uuid:deployment_webhook_id>/test -> [log]
post /v1/platform/deployment-webhooks/<uuid:deployment_webhook_id>/deliveries/<uuid:delivery_id>/replay -> [log]
post /o/<uuid:workspace_id>/settings/deployment-webhooks -> deployment_webhook.created
post /o/<uuid:workspace_id>/settings/deployment-webhooks/<uuid:deployment_webhook_id> -> deployment_webhook.updated
post /o/<uuid:workspace_id>/settings/deployment-webhooks/<uuid:deployment_webhook_id>/delete -> deployment_webhook.deleted
post /o/<uuid:workspace_id>/settings/deployment-webhooks/<uuid:deployment_webhook_id>/deliveries/<uuid:delivery_id>/replay -> [log]
post /v1/projects/<uuid:deployment_id>/deploy_logs -> [asks]
post /v1/projects/<uuid:deployment_id>/revisions/<uuid:revision_id>/build_logs -> [asks]
post /v1/projects/<uuid:deployment_id>/revisions/<uuid:revision_id>/deploy_logs -> [asks]
post /o/<uuid:workspace_id>/deployments/new -> deployment.created
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/delete -> deployment.deleted
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/stop -> deployment.stopped
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/start -> deployment.started
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/restart -> deployment.restarted
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/deploy -> revision.created
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/environment -> deployment.secrets_changed
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/revisions/<uuid:revision_id>/redeploy -> deployment.rolled_back
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/revisions/<uuid:revision_id>/stop -> revision.interrupted
post /o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/settings -> deployment.updated

post /runs -> [work]
patch /runs/<uuid:run_id> -> [work]
post /runs/batch -> [work]
post /runs/multipart -> [work]
post /otel/v1/traces -> [work]
post /otel/v1/claude_code -> [work]
post /otel/v1/logs -> [work]
post /otel/v1/metrics -> [work]
post /feedback -> [work]
patch /feedback/<uuid:feedback_id> -> [work]
delete /feedback/<uuid:feedback_id> -> [work]
post /feedback/eager -> [work]
post /feedback/tokens -> [work]
post /feedback/tokens/<uuid:token> -> [work]
post /feedback-configs -> [work]
patch /feedback-configs -> [work]
delete /feedback-configs -> [work]
post /feedback/formulas -> [work]
put /feedback/formulas/<uuid:formula_id> -> [work]
delete /feedback/formulas/<uuid:formula_id> -> [work]
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/r/<uuid:run_id>/feedback -> [work]
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/r/<uuid:run_id>/feedback/<uuid:feedback_id>/delete -> [work]
post /o/<uuid:workspace_id>/settings/feedback -> [work]
post /o/<uuid:workspace_id>/settings/feedback/delete -> [work]

post /v1/platform/evaluators -> evaluator.created
delete /v1/platform/evaluators -> evaluator.deleted
patch /v1/platform/evaluators/<uuid:evaluator_id> -> evaluator.updated
delete /v1/platform/evaluators/<uuid:evaluator_id> -> evaluator.deleted
post /runs/rules -> evaluator_rule.created
post /runs/rules/trigger -> [work]
post /runs/rules/validate -> [work]
post /runs/rules/<uuid:evaluator_rule_id>/backfill -> [work]
delete /runs/rules/<uuid:evaluator_rule_id>/backfill -> [work]
post /runs/experiments/<uuid:experiment_id>/evaluate -> [work]
patch /runs/rules/<uuid:evaluator_rule_id> -> evaluator_rule.updated
delete /runs/rules/<uuid:evaluator_rule_id> -> evaluator_rule.deleted
post /runs/rules/<uuid:evaluator_rule_id>/trigger -> [work]
post /o/<uuid:workspace_id>/evaluators/new -> evaluator_rule.created
post /o/<uuid:workspace_id>/evaluators/try -> [work]
post /o/<uuid:workspace_id>/evaluators/<uuid:evaluator_rule_id>/edit -> evaluator_rule.updated
post /o/<uuid:workspace_id>/evaluators/<uuid:evaluator_rule_id>/change -> evaluator_rule.updated
post /o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/experiments/evaluations -> [work]
post /v1/platform/alerts -> alert.created
post /v1/platform/alerts/preview -> [asks]
patch /v1/platform/alerts/rules/<uuid:rule_id> -> alert.updated
delete /v1/platform/alerts/rules/<uuid:rule_id> -> alert.deleted
post /v1/platform/alerts/rules/<uuid:rule_id>/test -> [log]
post /v1/platform/alerts/rules/<uuid:rule_id>/silence -> alert.updated
post /v1/platform/alerts/rules/<uuid:rule_id>/deliveries/<uuid:delivery_id>/replay -> [log]
post /v1/platform/alerts/<uuid:project_id> -> alert.created
post /v1/platform/alerts/<uuid:project_id>/test -> [asks]
patch /v1/platform/alerts/<uuid:project_id>/<uuid:rule_id> -> alert.updated
delete /v1/platform/alerts/<uuid:project_id>/<uuid:rule_id> -> alert.deleted
post /v1/platform/alerts/<uuid:project_id>/<uuid:rule_id>/test -> [log]
post /o/<uuid:workspace_id>/alerts/new -> alert.created
post /o/<uuid:workspace_id>/alerts/<uuid:rule_id> -> alert.updated
post /o/<uuid:workspace_id>/alerts/<uuid:rule_id>/edit -> alert.updated
post /o/<uuid:workspace_id>/alerts/<uuid:rule_id>/change -> alert.updated
post /o/<uuid:workspace_id>/alerts/<uuid:rule_id>/channels/<uuid:action_id>/delete -> alert.updated
post /o/<uuid:workspace_id>/alerts/<uuid:rule_id>/deliveries/<uuid:delivery_id>/replay -> [log]

post /charts -> [asks]
post /org-charts -> [asks]
post /org-charts/preview -> [asks]
post /org-charts/create -> [view]
post /org-charts/<uuid:organization_chart_id> -> [asks]
patch /org-charts/<uuid:organization_chart_id> -> [view]
delete /org-charts/<uuid:organization_chart_id> -> [view]
post /org-charts/section -> [view]
post /org-charts/section/clone -> [view]
post /org-charts/section/<uuid:organization_section_id> -> [asks]
patch /org-charts/section/<uuid:organization_section_id> -> [view]
delete /org-charts/section/<uuid:organization_section_id> -> [view]
post /charts/preview -> [asks]
post /charts/create -> [view]
post /charts/<uuid:chart_id> -> [asks]
patch /charts/<uuid:chart_id> -> [view]
delete /charts/<uuid:chart_id> -> [view]
post /charts/section -> [view]
post /charts/section/clone -> [view]
post /charts/section/<uuid:section_id> -> [asks]
patch /charts/section/<uuid:section_id> -> [view]
delete /charts/section/<uuid:section_id> -> [view]
post /sessions/<uuid:project_id>/dashboard -> [asks]
post /sessions/<uuid:project_id>/views -> [view]
patch /sessions/<uuid:project_id>/views/<uuid:view_id> -> [view]
delete /sessions/<uuid:project_id>/views/<uuid:view_id> -> [view]
patch /sessions/<uuid:project_id>/views/<uuid:view_id>/rename -> [view]
post /o/<uuid:workspace_id>/dashboards -> [view]
post /o/<uuid:workspace_id>/dashboards/<uuid:section_id>/arrange -> [view]
post /o/<uuid:workspace_id>/dashboards/<uuid:section_id>/change -> [view]
post /o/<uuid:workspace_id>/dashboards/<uuid:section_id>/charts/<uuid:chart_id> -> [view]
post /o/<uuid:workspace_id>/dashboards/<uuid:section_id>/charts/new -> [view]
post /o/<uuid:workspace_id>/dashboards/for-project/<uuid:project_id> -> [view]
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/columns -> [view]
post /o/<uuid:workspace_id>/projects/p/<uuid:project_id>/views -> [view]

post /runs/query -> [asks]
post /runs/query/validate -> [asks]
post /runs/group -> [asks]
post /runs/group/stats -> [asks]
post /runs/stats -> [asks]
post /public/<uuid:token>/runs/query -> [asks]
post /v2/public/<uuid:token>/runs/query -> [asks]
post /v2/runs/query -> [asks]
post /v2/threads/query -> [asks]
post /v2/threads/stats -> [asks]
post /v2/traces/query -> [asks]
post /(?:(?:.+/)?v1/)?metadata/submit -> [none]
post /v1/beacon/ingest-traces -> [none]
post /v1/beacon/usage-snapshot -> [none]
post /v1/beacon/v1/metrics -> [none]
post /v1/beacon/v1/traces -> [none]
post /v1/beacon/verify -> [none]
"""
# Routes that answer every method equally and change nothing.
METHOD_INDEPENDENT = {"/auth", "/healthz", "/readyz"}
# Routes of agents: assistants, threads, runs and store items are content of their users.
AGENTS = "/agents/"

# Actions without a route: commands, tasks, the admin site, and parts of larger actions.
ELSEWHERE = {
    "user.client_sign_in_denied",  # the other answer of POST /account/device and /oauth/authorize
    "organization.deleted", "impersonation.started", "switch.changed", "audit.forgotten",
    "rate_limit.changed", "user.sign_in_failed", "usage_limit.deleted", "prompt.published",
}  # fmt: skip


def load_decisions() -> dict[tuple[str, str], str]:
    """Return the decisions by method and route; reasons are in brackets."""
    by_route = {}
    for line in filter(None, TABLE.splitlines()):
        route_text, _, decision = line.partition(" -> ")
        method, _, route = route_text.partition(" ")
        assert (method, route) not in by_route, line
        by_route[method, route] = decision
    return by_route
