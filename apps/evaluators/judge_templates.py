"""Judges to begin with: messages in Mustache, and one feedback key."""

from __future__ import annotations

from dataclasses import dataclass

YES_OR_NO, NUMBER, CATEGORY = "boolean", "number", "category"
KINDS = {YES_OR_NO: "Yes or no", NUMBER: "Number", CATEGORY: "Category"}


@dataclass(frozen=True, slots=True)
class JudgeTemplate:
    """Initial values of the form of a judge."""

    label: str
    about: str
    system: str
    prompt: str
    key: str
    description: str
    kind: str = YES_OR_NO
    categories: str = ""
    needs_reference: bool = False


TEMPLATES: dict[str, JudgeTemplate] = {
    "correctness": JudgeTemplate(
        "Correctness",
        "Compares the answer with the reference output of the example.",
        "You check answers against a reference. Judge the facts alone: other words, another order"
        " and further true details are fine. An answer that contradicts the reference, or leaves"
        " out what was asked for, is not correct. Explain first, then decide.",
        "Input:\n{{input}}\n\nReference:\n{{reference}}\n\nAnswer to judge:\n{{output}}",
        "correctness",
        "Whether the answer agrees with the reference.",
        needs_reference=True,
    ),
    "conciseness": JudgeTemplate(
        "Conciseness",
        "Whether the answer says what is needed and no more.",
        "You judge how economical answers are. A concise answer has all that the input asks for,"
        " without introductions, repetitions or remarks about itself. A short answer that leaves"
        " something out is not concise but incomplete. Explain first, then give a number from 0"
        " (mostly filler) to 1 (nothing could go).",
        "Input:\n{{input}}\n\nAnswer to judge:\n{{output}}",
        "conciseness",
        "From 0, mostly filler, to 1, nothing could go.",
        kind=NUMBER,
    ),
    "hallucination": JudgeTemplate(
        "Hallucination",
        "Whether the answer claims what the input does not support.",
        "You look for claims in an answer that nothing in its input supports: invented facts,"
        " names, numbers, sources or quotations. General knowledge that no reader would doubt is"
        " fine. Name the unsupported claims first, then decide.",
        "Input, with all context that the answer had:\n{{input}}\n\nAnswer to judge:\n{{output}}",
        "hallucination",
        "Whether the answer has a claim without support: yes is bad.",
    ),
    "blank": JudgeTemplate("Blank", "Your own question about the run.", "", "{{output}}", "", ""),
}
