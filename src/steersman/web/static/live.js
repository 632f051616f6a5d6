// The connection that says when something changed. Lost: it shows, and is tried again until it is there.

const SILENCE = 16000; // milliseconds without a beat, after which a connection is dead whatever its socket says
const PAUSES = [500, 1000, 2000, 5000];

export function connect(sign, told) {
  let source = null;
  let failures = 0;
  let silence = 0;
  let retry = 0;

  const show = (state, text) => {
    sign.hidden = false;
    sign.className = `pill live ${state}`;
    if (sign.textContent !== text) sign.textContent = text;
  };
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(lost, SILENCE);
  };
  const lost = () => {
    clearTimeout(silence);
    clearTimeout(retry);
    source?.close();
    source = null;
    failures += 1;
    show("lost", "Connection lost");
    retry = setTimeout(open, PAUSES[Math.min(failures - 1, PAUSES.length - 1)]);
  };
  const open = () => {
    clearTimeout(retry);
    if (source) return;
    if (failures === 0) show("trying", "Connecting");
    source = new EventSource(`${document.body.dataset.root}api/v1/events`);
    heard();
    source.onerror = lost;
    for (const kind of ["change", "beat"]) {
      source.addEventListener(kind, () => {
        const healed = failures > 0;
        failures = 0;
        heard();
        show("", "Live");
        told(kind);
        if (healed) told("change");
      });
    }
  };
  window.addEventListener("online", open);
  window.addEventListener("pagehide", () => source?.close());
  window.addEventListener("pageshow", (event) => event.persisted && lost());
  open();
}
