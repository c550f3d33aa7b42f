"""Time zones by the names that Arrow has for them."""

from __future__ import annotations

import datetime
import re
import zoneinfo

from ._errors import DataError


def zone(name: str) -> datetime.tzinfo:
    """The zone of a name such as ``Europe/Berlin``, or of a fixed offset such as ``+05:30``."""
    if offset := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        sign, hours, minutes = offset.groups()
        span = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        if span < datetime.timedelta(days=1):
            return datetime.timezone(-span if sign == "-" else span)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise DataError(
            f"the time zone {name!r} is not known to Python",
            code="unsupported_value",
            hint="install the package tzdata, or read the batch with an Arrow library, such as pyarrow or polars",
        ) from None
