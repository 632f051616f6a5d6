"""What every page has around its view: head, navigation, the sign of life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.web.assets import static_digest
from steersman.web.health import own_version
from steersman.web.markup import Element, h
from steersman.web.pages.components import command

if TYPE_CHECKING:
    from steersman.web.model import Leadership
    from steersman.web.snapshot_cache import SnapshotCache

_NAVIGATION: Final = (
    ("now", "/", "Now"),
    ("map", "/map", "Map"),
    ("history", "/history", "History"),
    ("operators", "/operators", "Operators"),
)
_WHEEL: Final = (
    "M12 2v4m0 12v4M2 12h4m12 0h4M4.9 4.9l2.9 2.9m8.4 8.4 2.9 2.9m0-14.2-2.9 2.9M7.8 16.2l-2.9 2.9"
    "M12 6a6 6 0 1 0 0 12 6 6 0 0 0 0-12Zm0 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4Z"
)


def document(
    name: str, title: str, *view: object, cache: SnapshotCache | None = None, refresh: str = "change"
) -> Element:
    """A whole page. `refresh` says what brings it up to date: `change`, `beat` or nothing."""
    scripts = ("app.js", "map.js") if name == "map" else ("app.js",)
    described = notice = standby = None
    if cache is not None:
        vitals = cache.vitals()
        ready = all(check.problem is None for check in vitals.checks)
        word, tone = _process(vitals.leadership, ready=ready)
        unread = [check for check in vitals.checks if check.problem is not None and check.name.startswith("source ")]
        if unread and name not in {"now", "health"}:  # which say it themselves
            text = "Some sources cannot be read now: this page shows what was last known. "
            notice = h("p", {"class": "alert", "role": "status"}, text, h("a", {"href": cache.health_path}, "Health"))
        standby = _standby(vitals.leadership)
        described = h("a", {"class": f"pill {tone}", "href": cache.health_path, "id": "process"}, word)
    return h(
        "html",
        {"lang": "en"},
        h(
            "head",
            {},
            h("meta", {"charset": "utf-8"}),
            h("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
            h("meta", {"name": "color-scheme", "content": "light dark"}),
            h("title", {}, f"{title} · Steersman"),
            h("link", {"rel": "icon", "href": _file("icon.svg"), "type": "image/svg+xml"}),
            h("link", {"rel": "stylesheet", "href": _file("page.css")}),
            *(h("script", {"type": "module", "src": _file(script)}) for script in scripts if cache is not None),
        ),
        h(
            "body",
            {"data-view": name, "data-refresh": refresh, "data-root": "/"},
            h("a", {"class": "skip", "href": "#view"}, "Skip to content"),
            h(
                "header",
                {"class": "top"},
                h(
                    "div",
                    {"class": "bar"},
                    h("a", {"class": "brand", "href": "/"}, _wheel(), h("span", {}, "Steersman")),
                    _navigation(name, cache) if cache is not None else None,
                    h(
                        "div",
                        {"class": "tools"},
                        described,
                        h("span", {"class": "pill live", "id": "live", "role": "status", "hidden": True}, "Live"),
                        h(
                            "button",
                            {"class": "icon", "id": "theme", "type": "button", "hidden": True},
                            "Theme",
                        ),
                    )
                    if cache is not None
                    else None,
                ),
            ),
            h("main", {"id": "view", "tabindex": "-1"}, standby, notice, *view),
            h(
                "footer",
                {},
                h("span", {}, f"Steersman {own_version()}"),
                h("span", {}, "Read-only. Names, keys and digests; never a value."),
                h(
                    "form",
                    {"method": "post", "action": "/sign-out"},
                    h("button", {"type": "submit", "class": "icon"}, "Sign out"),
                )
                if cache is not None and cache.asks_for_tokens
                else None,
                h("a", {"href": "/api/v1/openapi.json"}, "API"),
            ),
        ),
    )


def _process(who: Leadership, *, ready: bool) -> tuple[str, str]:
    """The process in a word, and its colour; leadership is a word only where there is an election."""
    if not ready:
        return "Not ready", "bad"
    if not who.elected:
        return "Ready", "good"
    return ("Leading", "good") if who.leading else ("Standby", "waiting")


def _standby(who: Leadership) -> Element | None:
    """On a replica that does not lead: which pod does, and the way to its page."""
    if not who.elected or who.leading:
        return None
    pod = who.leader.rpartition("_")[0]
    if not pod:
        return h("p", {"class": "card standby", "role": "status"}, "This replica is on standby. No replica leads now.")
    return h(
        "div",
        {"class": "card standby", "role": "status"},
        h("p", {}, "This replica is on standby. The leader is ", h("b", {}, pod), ", whose page shows what is done."),
        h("p", {"hidden": True}, h("a", {"id": "leader", "data-pod": pod}, "Open the page of the leader")),
        command(f"kubectl port-forward -n {who.namespace} pod/{pod} 8080"),
    )


def problem_page(text: str, status: int) -> Element:
    """A page that says what is wrong."""
    return document(
        "problem",
        "Not found" if status == 404 else "Problem",
        h(
            "section",
            {"class": "lone"},
            h("h1", {}, {404: "Not found", 403: "Access denied", 400: "Invalid request"}.get(status, "Problem")),
            h("p", {}, text),
            h("p", {}, h("a", {"class": "button", "href": "/"}, "Back to now")),
        ),
    )


def sign_in_page(target: str, problem: str = "") -> Element:
    """The form that takes a token."""
    return document(
        "sign-in",
        "Sign in",
        h(
            "section",
            {"class": "lone"},
            h("h1", {}, "Sign in"),
            h("p", {}, "Sign in with a token that this cluster accepts."),
            h("p", {"class": "alert", "role": "alert"}, problem) if problem else None,
            h(
                "form",
                {"method": "post", "action": "/sign-in", "class": "stack"},
                h("input", {"type": "hidden", "name": "to", "value": target}),
                h("label", {"for": "token"}, "Token"),
                h(
                    "input",
                    {
                        "id": "token",
                        "name": "token",
                        "type": "password",
                        "autocomplete": "off",
                        "required": True,
                        "autofocus": True,
                    },
                ),
                h("p", {"class": "hint"}, "For example from ", h("code", {}, "kubectl create token NAME"), "."),
                h("button", {"type": "submit", "class": "button"}, "Sign in"),
            ),
        ),
    )


def _navigation(current: str, cache: SnapshotCache) -> Element:
    return h(
        "nav",
        {"aria-label": "Views"},
        [
            h("a", {"href": path, "aria-current": "page" if name == current else None}, title)
            for name, path, title in (*_NAVIGATION, ("health", cache.health_path, "Health"))
        ],
    )


def _wheel() -> Element:
    return h(
        "svg",
        {"viewBox": "0 0 24 24", "class": "mark", "aria-hidden": "true"},
        h("path", {"d": _WHEEL}),
    )


def _file(name: str) -> str:
    return f"/static/{static_digest()}/{name}"
