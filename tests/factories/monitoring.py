from __future__ import annotations

from typing import Any

import factory
from factory.django import DjangoModelFactory

from apps.monitoring.models import Chart, OrganizationChart, OrganizationSection, Section
from tests.factories.organizations import OrganizationFactory, WorkspaceFactory


class SectionFactory(DjangoModelFactory[Section]):
    class Meta:
        model = Section

    workspace = factory.SubFactory(WorkspaceFactory)
    title = factory.Sequence(lambda n: f"Section {n}")

    @classmethod
    def _create(cls, model_class: type[Section], *args: Any, **fields: Any) -> Section:
        return model_class.unscoped.create(*args, **fields)


class ChartFactory(DjangoModelFactory[Chart]):
    class Meta:
        model = Chart

    section = factory.SubFactory(SectionFactory)
    workspace = factory.SelfAttribute("section.workspace")
    title = factory.Sequence(lambda n: f"Chart {n}")
    series: list[dict[str, Any]] = [{"id": "a", "name": "Runs", "metric": "run_count"}]

    @classmethod
    def _create(cls, model_class: type[Chart], *args: Any, **fields: Any) -> Chart:
        return model_class.unscoped.create(*args, **fields)


class OrganizationSectionFactory(DjangoModelFactory[OrganizationSection]):
    class Meta:
        model = OrganizationSection

    organization = factory.SubFactory(OrganizationFactory)
    title = factory.Sequence(lambda n: f"Section {n}")


class OrganizationChartFactory(DjangoModelFactory[OrganizationChart]):
    class Meta:
        model = OrganizationChart

    section = factory.SubFactory(OrganizationSectionFactory)
    organization = factory.SelfAttribute("section.organization")
    title = factory.Sequence(lambda n: f"Chart {n}")
