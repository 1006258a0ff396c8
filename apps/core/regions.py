"""The regions; their rate limits are in `apps/rate_limits/table.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RegionName = Literal["us", "eu"]
BILLING_REGION = "us"
"""The region whose database stores payment and billing records."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region with its own databases."""

    name: RegionName
    title: str

    @property
    def keeps_billing(self) -> bool:
        return self.name == BILLING_REGION


REGIONS: dict[str, Region] = {
    "us": Region(name="us", title="United States"),
    "eu": Region(name="eu", title="European Union"),
}
