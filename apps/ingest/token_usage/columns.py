"""Reads the token counts and costs that a run reports, and returns the columns of the run.

Missing counts are not stored as estimates, which would look like reported counts in sums: see
`apps/trace_store/token_estimates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final

from apps.ingest.token_usage.normal_form import ReportedCounts, group_of, normalize
from apps.ingest.token_usage.vocabulary import (
    COSTS,
    OUTPUT_TREE,
    NameRule,
    RuleTree,
    looks_like_usage,
)

_MAX_COUNT = 2**59
"""Sums of all counts of a run fit in eight bytes."""
_MAX_COST_EXPONENT = 12
_COST_SCALE = 18
"""Digits after the decimal point of a cost."""
_MAX_DEPTH = 3
_COST_DETAILS: Final = {
    "input_cost_details": "prompt_cost_details",
    "output_cost_details": "completion_cost_details",
}
_KIND_DETAILS: Final = {"input_token_details": "input", "output_token_details": "output"}
"""Objects of `usage_metadata` whose keys are kinds of any name, and their side."""
_NESTED_USAGE: Final = frozenset({"raw", "iterations", *_COST_DETAILS})
"""Parts of a usage object that repeat its counts, or are not counts."""
_MODEL_RUN_TYPES = frozenset({"llm", "embedding", None})
_USAGE_KEYS = (
    "usage",
    "token_usage",
    "usageMetadata",
    "tokenUsage",
    "usage_metadata",
    "totalUsage",
)
_NO_HIDDEN_OUTPUT: Final = ("anthropic", "bedrock", "claude")
"""Providers whose output count contains all output, so that the rest of a total is input."""
_OLLAMA_NAMES: Final = ("prompt_eval_count", "eval_count")
_LABELS: Final = ("modality", "ttl")
_LABELLED_COUNTS: Final = ("tokenCount", "token_count", "inputTokens")


@dataclass(slots=True)
class ReportedUsage:
    """The usage of one run, before normalization."""

    counts: ReportedCounts = field(default_factory=ReportedCounts)
    costs: dict[str, Any] = field(default_factory=dict)
    cost_details: dict[str, Any] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    """Names that look like counts and are not in the vocabulary."""

    def to_columns(self) -> dict[str, Any]:
        """The columns of the run, without those that are not reported."""
        counts = normalize(self.counts)
        columns: dict[str, Any] = {
            "prompt_tokens": counts.input,
            "completion_tokens": counts.output,
            "total_tokens": counts.total,
        }
        if self.costs:
            columns |= self._parse_costs()
        details: dict[str, Any] = {}
        if counts.input_kinds:
            details["prompt_token_details"] = counts.input_kinds
        if counts.output_kinds:
            details["completion_token_details"] = counts.output_kinds
        details |= {name: value for name, value in self.cost_details.items() if value}
        if details:
            columns["usage_details"] = details
        return {name: value for name, value in columns.items() if value is not None}

    def _parse_costs(self) -> dict[str, Decimal | None]:
        prompt_cost, completion_cost, total_cost = (
            _parse_cost(self.costs.get(name))
            for name in ("input_cost", "output_cost", "total_cost")
        )
        if total_cost is None and (prompt_cost is not None or completion_cost is not None):
            total_cost = (prompt_cost or Decimal(0)) + (completion_cost or Decimal(0))
        return {
            "prompt_cost": prompt_cost,
            "completion_cost": completion_cost,
            "total_cost": total_cost,
        }


def usage_columns(
    run_type: str | None, outputs: Any, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the columns of reported tokens and costs, without those that are not reported."""
    usage = read_usage(run_type, outputs, metadata)
    return {} if usage is None else usage.to_columns()


def read_usage(
    run_type: str | None, outputs: Any, metadata: dict[str, Any] | None
) -> ReportedUsage | None:
    """Return the usage that a run reports; None without one.

    `usage_metadata` is used for every run type; provider formats only for model calls, because
    other runs often return the response of a model unchanged.
    """
    usage = _usage_metadata(outputs) or _usage_metadata(metadata)
    if usage is None and run_type in _MODEL_RUN_TYPES and outputs:
        usage = _provider_usage(outputs)
    if usage is not None and metadata and usage.counts.has_rest:
        model = f"{metadata.get('ls_provider')} {metadata.get('ls_model_name')}".lower()
        usage.counts.is_rest_input = any(name in model for name in _NO_HIDDEN_OUTPUT)
    return usage


# -- where the usage is ------------------------------------------------------


def _usage_metadata(holder: Any) -> ReportedUsage | None:
    usage = holder.get("usage_metadata") if isinstance(holder, dict) else None
    return read_object(usage) if isinstance(usage, dict) and usage else None


def _provider_usage(outputs: Any) -> ReportedUsage | None:
    """Usage in the formats of model providers and LangChain results."""
    unread: list[str] = []
    for candidate in _usage_objects(outputs):
        usage = read_object(candidate)
        if not usage.counts.is_empty:
            return usage
        unread += usage.unread
    if not isinstance(outputs, dict):
        return None
    if (usage_of_messages := _sum_messages(_flatten(outputs.get("generations")))) is not None:
        return usage_of_messages
    for value in outputs.values():
        message = value[-1] if isinstance(value, list) and value else value
        if (usage_of_message := _message_usage(message)) is not None:
            return usage_of_message
    return ReportedUsage(unread=unread) if unread else None


def _usage_objects(outputs: Any) -> Iterator[dict[str, Any]]:
    """Objects that may contain counts, most likely first."""
    if not isinstance(outputs, dict):
        return
    llm_output, meta = outputs.get("llm_output"), outputs.get("meta")
    response = outputs.get("response_metadata")
    for holder in (outputs, llm_output, response, outputs.get("response")):
        if isinstance(holder, dict):
            yield from (
                usage for name in _USAGE_KEYS if isinstance(usage := holder.get(name), dict)
            )
    if isinstance(meta, dict):  # Cohere
        yield {key: meta[key] for key in ("tokens", "billed_units") if key in meta}
    if "prompt_eval_count" in outputs:
        yield {name: outputs.get(name) for name in _OLLAMA_NAMES}


def _message_usage(message: Any) -> ReportedUsage | None:
    """The usage of a LangChain message, plain or serialized."""
    if not isinstance(message, dict):
        return None
    if isinstance(inner := message.get("message"), dict):
        message = inner
    return _usage_metadata(message) or _usage_metadata(message.get("kwargs"))


def _sum_messages(generations: list[Any]) -> ReportedUsage | None:
    """The sum over the messages of `generations`."""
    messages = [usage for item in generations if (usage := _message_usage(item)) is not None]
    if not messages:
        return None
    sums = messages[0]
    for usage in messages[1:]:
        total, counts = sums.counts, usage.counts
        total.input = _add(total.input, counts.input)
        total.output = _add(total.output, counts.output)
        total.total = _add(total.total, counts.total)
        _add_kinds(total.input_kinds, counts.input_kinds)
        _add_kinds(total.output_kinds, counts.output_kinds)
        _add_kinds(total.cached, counts.cached)
        total.outside |= counts.outside
        sums.unread += usage.unread
    return sums


def _add(first: int | None, second: int | None) -> int | None:
    return first if second is None else (first or 0) + second


def _add_kinds(sums: dict[str, int], counts: dict[str, int]) -> None:
    for kind, count in counts.items():
        sums[kind] = sums.get(kind, 0) + count


def _flatten(generations: Any) -> list[Any]:
    if not isinstance(generations, list):
        return []
    return [
        item for group in generations for item in (group if isinstance(group, list) else [group])
    ]


# -- which names it has ------------------------------------------------------


def read_object(usage: dict[str, Any]) -> ReportedUsage:
    """Read a usage object of any vocabulary, by the path of each number."""
    result = ReportedUsage()
    chosen: dict[str, tuple[NameRule, Any]] = {}
    _read_level(usage, OUTPUT_TREE, "", result, chosen)
    fill_counts(result, chosen.values())
    return result


def _read_level(
    level: dict[str, Any],
    tree: RuleTree,
    prefix: str,
    result: ReportedUsage,
    chosen: dict[str, tuple[NameRule, Any]],
) -> None:
    """Add the numbers of an object whose names are in `tree`, and of the objects in it."""
    for name, value in level.items():
        if value is None:
            continue
        node = tree.get(name)
        if isinstance(value, dict):
            if name in _NESTED_USAGE:
                if name in _COST_DETAILS:
                    result.cost_details[_COST_DETAILS[name]] = _parse_costs(value)
            elif not prefix and name in _KIND_DETAILS:
                _read_kinds(name, value, node, result, chosen)
            elif isinstance(node, dict) or prefix.count(".") < _MAX_DEPTH - 1:
                inner_tree = node if isinstance(node, dict) else {}
                _read_level(value, inner_tree, f"{prefix}{name}.", result, chosen)
            continue
        if isinstance(value, list):
            if name not in _NESTED_USAGE:
                inner_tree = node if isinstance(node, dict) else {}
                counts = _labelled_counts(value)
                _read_level(counts, inner_tree, f"{prefix}{name}.", result, chosen)
            continue
        if isinstance(node, dict):
            node = node.get("")
        if isinstance(node, NameRule):
            side = node.side
            if side != "known" and (side in COSTS or parse_count(value) is not None):
                other = chosen.get(node.target)
                if other is None or node.rank < other[0].rank:
                    chosen[node.target] = node, value
        elif parse_count(value) is not None and looks_like_usage(prefix + name):
            result.unread.append(prefix + name)


def _read_kinds(
    holder: str,
    kinds: dict[str, Any],
    node: NameRule | RuleTree | None,
    result: ReportedUsage,
    chosen: dict[str, tuple[NameRule, Any]],
) -> None:
    """Add the kinds of `usage_metadata`, which have any name, and those of a known name."""
    tree = node if isinstance(node, dict) else {}
    counts = result.counts
    kinds_of_side = counts.input_kinds if _KIND_DETAILS[holder] == "input" else counts.output_kinds
    for kind, value in kinds.items():
        if kind in tree:
            _read_level({kind: value}, tree, f"{holder}.", result, chosen)
        elif (count := parse_count(value)) is not None:
            kinds_of_side[kind] = count


def fill_counts(usage: ReportedUsage, chosen: Iterable[tuple[NameRule, Any]]) -> None:
    """Put the values of distinct fields into `usage`."""
    counts = usage.counts
    extra = 0
    outside: set[str] = set()
    is_complete = False
    for rule, value in chosen:
        side = rule.side
        if side in COSTS:
            usage.costs[side] = value
            continue
        count = parse_count(value)
        if count is None:
            continue
        if rule.is_complete:
            is_complete = True
        if not rule.kind:
            setattr(counts, side, count)
        elif side == "extra":
            extra += count
        elif count:
            if side == "input":
                counts.input_kinds[rule.kind] = count
            elif side == "output":
                counts.output_kinds[rule.kind] = count
            else:
                counts.cached[rule.kind] = count
            if rule.is_outside and (group := group_of(rule.kind)) is not None:
                outside.add(group)
    if extra and counts.input is not None:
        counts.input += extra
    if outside and not is_complete:
        counts.outside = frozenset(outside)


def _labelled_counts(items: list[Any]) -> dict[str, int]:
    """The counts of a list by modality or lifetime, in lower case."""
    sums: dict[str, int] = {}
    for item in items if len(items) <= 20 else ():
        if not isinstance(item, dict):
            continue
        label = next((item[name] for name in _LABELS if isinstance(item.get(name), str)), None)
        count = next(
            (n for name in _LABELLED_COUNTS if (n := parse_count(item.get(name))) is not None), None
        )
        if label is not None and count is not None:
            name = label.rpartition(".")[2].lower()
            sums[name] = sums.get(name, 0) + count
    return sums


def parse_count(value: Any) -> int | None:
    if type(value) is int:
        return value if 0 <= value < _MAX_COUNT else None
    return int(value) if type(value) is float and 0 <= value < _MAX_COUNT else None


def _parse_costs(details: dict[str, Any]) -> dict[str, int | float]:
    """The costs by kind that are numbers, as the public clients read them back."""
    costs: dict[str, int | float] = {}
    for kind, value in details.items():
        if (cost := _parse_cost(value)) is not None:
            # Numbers stay as they were sent: a conversion could change their digits.
            costs[kind] = value if isinstance(value, int | float) else float(cost)
    return costs


def _parse_cost(value: Any) -> Decimal | None:
    """The exact amount; None for infinite or implausibly large values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    if not amount.is_finite() or amount.adjusted() > _MAX_COST_EXPONENT:
        return None
    with localcontext(prec=_MAX_COST_EXPONENT + 1 + _COST_SCALE):
        return round(amount, _COST_SCALE)
