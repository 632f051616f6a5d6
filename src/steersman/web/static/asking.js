// Asking the server: one question at a time, and answers that may not come.

// The answer and its text, or null when nothing comes: the server is away, or the reader leaves the page. Nothing is
// told here, the connection's own sign does that.
export async function ask(address, headers = {}) {
  try {
    const answer = await fetch(address, { headers, cache: "no-store" });
    return { answer, text: await answer.text() };
  } catch {
    return null;
  }
}

// `work` one run at a time, and once more when it was wanted meanwhile: the last run begins after the last wish, so what
// is shown last is also the newest.
export function latest(work) {
  let running = false;
  let wanted = false;
  return async () => {
    wanted = true;
    if (running) return;
    running = true;
    try {
      while (wanted) {
        wanted = false;
        await work();
      }
    } finally {
      running = false;
    }
  };
}
