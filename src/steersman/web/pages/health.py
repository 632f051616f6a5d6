"""Health: who leads, what is wrong, watches, queues, and small charts of the last ten minutes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from steersman.runtime.manager.operator_bundle import RowState
from steersman.web import views
from steersman.web.markup import Element, h
from steersman.web.pages.components import age, duration, grid, row_state, sign
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.web.model import ControllerHealth, ProcessHealth, Series, WatchHealth
    from steersman.web.snapshot_cache import SnapshotCache

WIDTH, HEIGHT = 240, 48  # of a chart, in its own units


def page(cache: SnapshotCache, _path: dict[str, str], _query: Any) -> Element:
    """Draw it."""
    health = views.health_of(cache.vitals(), cache.now())
    vitals = health.vitals
    return document(
        "health",
        "Health",
        h(
            "div",
            {"class": "heading"},
            h("h1", {}, "Health"),
            sign("good", "Ready") if health.ready else sign("bad", "Not ready"),
        ),
        _problems(health),
        _facts(health),
        h(
            "section",
            {"class": "charts", "aria-label": "The last ten minutes"},
            [_chart(series) for series in vitals.series],
        ),
        _table(
            "Controllers",
            ("Controller", "Running", "Ready", "Waiting", "Done", "Failed", "Retries", "Reconcile", "In queue"),
            list(map(_controller, vitals.controllers)),
        ),
        _table(
            "Watches",
            ("Watch", "State", "Objects", "Last event", "resourceVersion"),
            [_watch(watch, health.at) for watch in vitals.watches],
        ),
        cache=cache,
        refresh="change beat",
    )


def _problems(health: ProcessHealth) -> Element | None:
    wrong = [check for check in health.vitals.checks if check.problem is not None]
    if not wrong:
        return None
    return h(
        "section",
        {"class": "alert", "role": "alert"},
        h("h2", {}, "Failing checks"),
        h("ul", {}, [h("li", {}, h("b", {}, check.name), f": {check.problem}") for check in wrong]),
    )


def _facts(health: ProcessHealth) -> Element:
    vitals, who = health.vitals, health.vitals.leadership
    rows: list[tuple[str, object]] = [
        *(
            [
                ("This process", "leader" if who.leading else "standby"),
                ("Identity", h("code", {}, who.identity)),
                ("Leader", h("code", {}, who.leader or "none")),
            ]
            if who.elected
            else [("Leader election", "off: this process acts alone")]
        ),
        ("Started", age(vitals.started, health.at)),
        ("Version", vitals.version),
        ("Checks", f"{sum(check.problem is None for check in vitals.checks)} of {len(vitals.checks)} passing"),
    ]
    return h("dl", {"class": "facts card"}, [[h("dt", {}, name), h("dd", {}, value)] for name, value in rows])


def _chart(series: Series) -> Element:
    last = series.values[-1] if series.values else None
    top = max(series.values, default=0.0)
    current = "no sample yet" if last is None else f"{_number(last)} {series.unit}"
    return h(
        "figure",
        {"class": "chart card", "data-key": series.name},
        h("figcaption", {}, series.name, h("b", {}, current)),
        h(
            "svg",
            {
                "viewBox": f"0 0 {WIDTH} {HEIGHT}",
                "preserveAspectRatio": "none",
                "role": "img",
                "aria-label": f"{series.name}: now {current}, at most {_number(top)}",
            },
            h("path", {"class": "area", "d": _area(series.values, top)}),
            h("path", {"class": "line", "d": _line(series.values, top)}),
        ),
        h(
            "p",
            {"class": "quiet"},
            f"at most {_number(top)} in {duration(max(1, len(series.values)) * series.step_seconds)}",
        ),
    )


def _points(values: list[float], top: float) -> list[tuple[float, float]]:
    step = WIDTH / max(1, len(values) - 1)
    usable = HEIGHT - 4
    return [(round(i * step, 1), round(HEIGHT - 2 - usable * (v / top if top else 0), 1)) for i, v in enumerate(values)]


def _line(values: list[float], top: float) -> str:
    points = _points(values, top)
    if len(points) < 2:
        return f"M0 {HEIGHT - 2}H{WIDTH}"
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def _area(values: list[float], top: float) -> str:
    if len(values) < 2:
        return f"M0 {HEIGHT}H{WIDTH}"
    return f"{_line(values, top)}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"


def _number(value: float) -> str:
    """Three digits at most.

    >>> [_number(value) for value in (0, 0.25, 12.34, 1234.5)]
    ['0', '0.25', '12.3', '1234']
    """
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _table(title: str, columns: tuple[str, ...], rows: list[list[Element]]) -> Element:
    return h(
        "section",
        {"data-key": title},
        h("h2", {}, title, h("span", {"class": "count"}, len(rows))),
        grid(title, columns, rows),
    )


def _controller(controller: ControllerHealth) -> list[Element]:
    return [
        h("td", {}, controller.name, None if controller.synced else row_state(RowState.BUSY)),
        h("td", {"class": "number"}, f"{controller.running}/{controller.workers}"),
        *(
            h("td", {"class": "number"}, number)
            for number in (
                controller.ready,
                controller.waiting,
                controller.succeeded,
                controller.failed,
                controller.retries,
                _ms(controller.mean_seconds),
                _ms(controller.mean_queue_seconds),
            )
        ),
    ]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{_number(1000 * seconds)} ms"


def _watch(watch: WatchHealth, now: datetime) -> list[Element]:
    state, note = watch.state
    last = None if watch.age_seconds is None else now - timedelta(seconds=watch.age_seconds)
    return [
        h("td", {}, watch.name),
        h("td", {}, row_state(state), h("span", {"class": "note"}, note) if note else None),
        h("td", {"class": "number"}, "-" if watch.unknown else watch.objects),
        h("td", {"class": "number"}, age(last, now)),
        h("td", {}, h("code", {}, watch.revision)),
    ]
