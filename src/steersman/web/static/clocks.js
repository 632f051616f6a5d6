// Times that go on: how long ago, how long until.

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  for (const [place, [size, name]] of units.entries()) {
    if (whole < size) continue;
    const first = Math.floor(whole / size);
    const next = units[place + 1];
    const second = next ? Math.floor((whole % size) / next[0]) : 0;
    return second ? `${first} ${name} ${second} ${next[1]}` : `${first} ${name}`;
  }
  return "0 s";
}

export function tick() {
  const now = Date.now() / 1000;
  const write = (element, text) => element.textContent !== text && (element.textContent = text);
  for (const element of document.querySelectorAll("time[data-age]")) {
    write(element, `${duration(now - Date.parse(element.dateTime) / 1000)} ago`);
  }
  for (const element of document.querySelectorAll("time[data-due]")) {
    const left = Date.parse(element.dateTime) / 1000 - now;
    write(element, left > 0 ? `in ${duration(left + 0.999)}` : "now");
  }
}
