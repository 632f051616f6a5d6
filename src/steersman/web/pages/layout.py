"""What every page has around its view: head, navigation, the sign of life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.web.assets import static_digest
from steersman.web.markup import Element, h
from steersman.web.vitals import own_version

if TYPE_CHECKING:
    from steersman.web.observer import Observer

__all__ = ["document", "problem_page", "sign_in_page"]

_NAVIGATION: Final = (
    ("now", "/", "Now"),
    ("map", "/map", "Map"),
    ("history", "/history", "History"),
    ("operators", "/operators", "Operators"),
    ("health", "/vitals", "Health"),
)
_WHEEL: Final = (
    "M12 2v4m0 12v4M2 12h4m12 0h4M4.9 4.9l2.9 2.9m8.4 8.4 2.9 2.9m0-14.2-2.9 2.9M7.8 16.2l-2.9 2.9"
    "M12 6a6 6 0 1 0 0 12 6 6 0 0 0 0-12Zm0 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4Z"
)


def document(
    name: str, title: str, *view: object, observer: Observer | None = None, refresh: str = "change"
) -> Element:
    """A whole page. `refresh` says what brings it up to date: `change`, `beat` or nothing."""
    scripts = ("app.js", "map.js") if name == "map" else ("app.js",)
    described = None
    if observer is not None:
        vitals = observer.vitals()
        ready = all(check.problem is None for check in vitals.checks)
        leading = vitals.leadership.leading
        word, tone = ("Leading", "good") if leading else ("Standby", "waiting")
        if not ready:
            word, tone = "Not ready", "bad"
        described = h("a", {"class": f"pill {tone}", "href": "/vitals", "id": "process"}, word)
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
            *(h("script", {"type": "module", "src": _file(script)}) for script in scripts if observer is not None),
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
                    _navigation(name) if observer is not None else None,
                    h(
                        "div",
                        {"class": "tools"},
                        described,
                        h("span", {"class": "pill live", "id": "live", "role": "status", "hidden": True}, "Live"),
                        h(
                            "button",
                            {"class": "icon", "id": "theme", "type": "button", "hidden": True, "title": "Theme"},
                            "Theme",
                        ),
                    )
                    if observer is not None
                    else None,
                ),
            ),
            h("main", {"id": "view", "tabindex": "-1"}, *view),
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
                if observer is not None and observer.asks_for_tokens
                else None,
                h("a", {"href": "/api/v1/openapi.json"}, "API"),
            ),
        ),
    )


def problem_page(text: str, status: int) -> Element:
    """A page that says what is wrong."""
    return document(
        "problem",
        "Not here" if status == 404 else "Problem",
        h(
            "section",
            {"class": "lone"},
            h("h1", {}, {404: "Not here", 403: "Not for you", 400: "That makes no sense"}.get(status, "Problem")),
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
            h("p", {}, "This page is for people whom the cluster knows. ", "A token of yours opens it."),
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


def _navigation(current: str) -> Element:
    return h(
        "nav",
        {"aria-label": "Views"},
        [
            h("a", {"href": path, "aria-current": "page" if name == current else None}, title)
            for name, path, title in _NAVIGATION
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
