// Brings the page to life: live updates, clocks, filters, the theme. Without it everything still reads.
import { ask, latest } from "./asking.js";
import { connect } from "./live.js";
import { morph } from "./morph.js";
import { tick } from "./clocks.js";

const view = document.getElementById("view");
const kinds = (document.body.dataset.refresh || "").split(" ");
const refresh = latest(renew);

document.documentElement.classList.add("scripted");
theme();
copying();
leader();
tick();
setInterval(tick, 1000);
forms();
connect(document.getElementById("live"), (kind) => {
  if (kinds.includes(kind) && document.visibilityState === "visible") refresh();
  if (kind === "change") document.dispatchEvent(new Event("steersman:change"));
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());

// -- the view as it is now ------------------------------------------------------------------------------------------

async function renew() {
  const asked = await ask(location.href, { Accept: "text/html" });
  if (!asked) return;
  const { answer, text } = asked;
  if (answer.redirected && new URL(answer.url).pathname.endsWith("/sign-in")) location.reload();
  if (answer.ok || answer.status === 404) morph(document, view, text);
  leader();
  tick();
}

// -- forms that filter as one types -----------------------------------------------------------------------------------

function forms() {
  let waiting = 0;
  const go = (form) => {
    const asked = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) asked.append(name, value);
    const text = asked.toString();
    history.replaceState(null, "", text ? `${form.getAttribute("action")}?${text}` : form.getAttribute("action"));
    document.dispatchEvent(new Event("steersman:filter"));
    refresh();
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(waiting);
    waiting = setTimeout(go, 150, form);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-live]")) return;
    event.preventDefault();
    go(event.target);
  });
  document.addEventListener("keydown", (event) => {
    const search = document.getElementById("text");
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && search && !typing) {
      event.preventDefault();
      search.focus();
    }
  });
}

// -- a standby behind the pod proxy of an API server leads to the page of the leader ------------------------------------

function leader() {
  const link = document.getElementById("leader");
  const here = /^(.*\/namespaces\/[^/]+\/pods\/(?:https?:)?)[^/:]+(:[^/]*)?\/proxy\//.exec(location.pathname);
  if (!link || !here) return;
  link.href = `${here[1]}${link.dataset.pod}${here[2] ?? ""}/proxy/`;
  link.parentElement.hidden = false;
}

// -- commands to copy --------------------------------------------------------------------------------------------------

function copying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling); // the browser keeps its clipboard: select it
    }
  });
}

// -- light and dark -----------------------------------------------------------------------------------------------------

function theme() {
  const button = document.getElementById("theme");
  const names = ["auto", "light", "dark"];
  const read = () => {
    try {
      return localStorage.getItem("steersman-theme");
    } catch {
      return null;
    }
  };
  let chosen = names.includes(read()) ? read() : "auto";
  const show = () => {
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    const next = names[(names.indexOf(chosen) + 1) % names.length];
    button.textContent = `Theme: ${chosen}`;
    button.title = next === "auto" ? "Follow the theme of the system" : `Use the ${next} theme`;
    document.dispatchEvent(new Event("steersman:theme"));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    chosen = names[(names.indexOf(chosen) + 1) % names.length];
    try {
      localStorage.setItem("steersman-theme", chosen);
    } catch {
      // kept for this page only
    }
    show();
  });
  show();
}
