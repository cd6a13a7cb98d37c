"""Panels of a Grafana dashboard and the JSON that they make.

Knows the format alone; which panels there are is in `dashboards`.
"""

from dataclasses import dataclass, field
from typing import Any

SCHEMA = 39
"""Version of the dashboards' format: Grafana 10.4, and read by all newer ones."""
COLUMNS, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel."""

    expression: str
    legend: str = ""
    """Template of the names of its series; empty: their labels."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel, a third of the page wide."""

    title: str
    unit: str
    """Grafana's name of it: short, s, percentunit, ops, reqps, none."""
    queries: tuple[Query, ...]
    words: str = ""
    """What is seen, where the title does not say."""
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False

    def model(self, number: int, x: int, y: int) -> Object:
        """Return its JSON at a place of the grid."""
        targets = [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": one.expression,
                "legendFormat": one.legend or "__auto",
                **({"instant": True, "format": "table"} if self.kind == "table" else {}),
            }
            for at, one in enumerate(self.queries)
        ]
        defaults: Object = {"unit": self.unit, "min": 0}
        if self.kind == "timeseries":
            mode = "normal" if self.stacked else "none"
            fill = 30 if self.stacked else 0
            defaults["custom"] = {"stacking": {"mode": mode}, "fillOpacity": fill}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            **({"description": self.words} if self.words else {}),
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": HEIGHT},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": {},
            "targets": targets,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with the panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the head of a dashboard: the values of one label."""

    name: str
    query: str
    """`label_values(METRIC, LABEL)`"""

    def model(self) -> Object:
        """Return its JSON."""
        return {
            "name": self.name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": self.query, "refId": self.name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".+",
            "current": {"text": "All", "value": "$__all"},
        }


CHOICE_OF_SOURCE = {
    "name": "datasource",
    "type": "datasource",
    "query": "prometheus",
    "label": "data source",
}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    uid: str
    """Its name in addresses, and its file's."""
    title: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...] = field(default_factory=tuple)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them, without headings."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def model(self) -> Object:
        """Return its JSON."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["outrider"],
            "schemaVersion": SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [CHOICE_OF_SOURCE, *(v.model() for v in self.variables)]},
            "panels": self._placed(),
        }

    def _placed(self) -> list[Object]:
        placed: list[Object] = []
        y = 0
        for row in self.rows:
            place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
            heading = {"type": "row", "title": row.title, "gridPos": place, "panels": []}
            placed.append({"id": len(placed) + 1, "collapsed": False, **heading})
            x, y = 0, y + 1
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y = 0, y + HEIGHT
                placed.append(panel.model(len(placed) + 1, x, y))
                x += panel.width
            y += HEIGHT
        return placed
