// The dashboard: reads the admin API every two seconds and at every event that changes a state, and sends what an operator asks for.
// Text of servers is only ever set as text. The token lives in `token` and nowhere else.

const EVERY_MS = 2000, CARDS = 300, LINES = 300, SAMPLES = 40;
const find = (selector, within = document) => within.querySelector(selector);

/** An element with properties and children; `class` and other attributes by their own names. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Sets a text or a class only where it differs, so that what a reader has selected or focused stays. */
function set(node, text, classes) {
  if (node.textContent !== text) node.textContent = text;
  if (classes !== undefined && node.className !== classes) node.className = classes;
}

/** Makes the children of a list those of `items`: known keys are updated in place, the focus stays where it is. */
function keyed(list, items, make, update) {
  const known = new Map([...list.children].map((node) => [node.dataset.key, node]));
  const focused = document.activeElement;
  items.forEach(([key, item], place) => {
    const node = known.get(key) ?? make(key);
    known.delete(key);
    node.dataset.key = key;
    update(node, item, key);
    if (list.children[place] !== node) list.insertBefore(node, list.children[place] ?? null);
  });
  for (const node of known.values()) node.remove();
  if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true });
}

// Words for numbers and times.
const number = new Intl.NumberFormat("en");
const count = (many, one, more = one + "s") => `${number.format(many)} ${many === 1 ? one : more}`;
const percent = (part, all) => (all ? `${(100 * part / all).toFixed(part && part * 1000 < all ? 2 : 1).replace(/\.0$/, "")} %` : "–");
function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60 % 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600 % 24)} h`;
}
const ago = (at) => (at == null ? "–" : Date.now() - at < 1000 ? "just now" : `${duration(Math.floor((Date.now() - at) / 1000) * 1000)} ago`);
const within = (ms) => (ms == null ? "–" : ms <= 0 ? "now" : `in ${duration(Math.ceil(ms / 1000) * 1000)}`);

// Requests, and the token.
let token = null, asking = null;
class Refused extends Error {}

async function send(path, { method = "GET", body } = {}) {
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  const refused = new Refused(told.error);
  refused.status = answer.status;
  refused.wantsToken = answer.status === 401 || (answer.status === 403 && told.refused === undefined);
  throw refused;
}
const read = async (path) => (await send(path)).json();

/** Asks for the token in a dialog; all who ask at once get the same answer. */
function askToken(why) {
  asking ??= shown(find("#token"), () => {
    find("#token-why").textContent = why;
    find("#token-text").value = "";
  }).then((is) => {
    asking = null;
    if (is) token = find("#token-text").value.trim() || null;
    find("#token-text").value = "";
    set(find("#enter-token"), token === null ? "Enter token" : "Forget token");
    return token !== null && is;
  });
  return asking;
}

/** Shows a dialog until it is closed; whether it was agreed to. */
function shown(dialog, prepare) {
  prepare();
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "ok"), { once: true }));
}
for (const cancel of document.querySelectorAll("dialog button[value=cancel]")) {
  cancel.addEventListener("click", () => cancel.closest("dialog").close("cancel"));
}

const sure = (title, text, verb) => shown(find("#sure"), () => {
  find("#sure-title").textContent = title;
  find("#sure-text").textContent = text;
  find("#sure button.main").textContent = verb;
});

let quiet;
function say(text) {
  find("#said").textContent = text;
  clearTimeout(quiet);
  quiet = setTimeout(() => { find("#said").textContent = ""; }, 8000);
}

/** Makes a change, with the token; asks for it where it is missing or wrong, and says what came of it. */
async function change(done, path, options) {
  for (;;) {
    try {
      await send(path, options);
      say(done);
      break;
    } catch (error) {
      if (error.wantsToken) {
        const why = error.status === 401 ? "Changes need the gateway's admin token." : "The gateway refused this token.";
        if (error.status === 403) token = null;
        if (await askToken(why)) continue;
        say("Nothing was changed.");
      } else say(error instanceof Refused ? `Not done: ${error.message}` : "Not done: the gateway does not answer.");
      break;
    }
  }
  refresh();
}

// What the gateway told last.
let told = null, toldAt = 0, needsToken = false, polling = false, again = false, next;
const sinceTold = () => Date.now() - toldAt;

/** Reads everything again: now, or once more if it is being read. */
async function refresh() {
  clearTimeout(next);
  if (polling) { again = true; return; }
  polling = true;
  try {
    const queue = read("/resilience/queue?state=waiting,delivering,dead").catch((error) => {
      if (error.status === 404 || error.status === 503) return { items: [], trouble: error.status === 503 ? error.message : null, none: error.status === 404 };
      throw error;
    });
    const [servers, breakers, tools, queued] = await Promise.all([read("/resilience/servers"), read("/resilience/breakers"), read("/resilience/tools"), queue]);
    told = { servers: servers.servers, breakers: breakers.details, sums: breakers.metrics, tools: tools.tools, queue: queued };
    toldAt = Date.now();
    sample();
    linked(true);
    show();
  } catch (error) {
    linked(false, error instanceof Refused ? error.message : "The gateway does not answer.");
    if (error.wantsToken && !asking) {
      // No further try with a token that is wrong: the gateway slows down whoever guesses.
      needsToken = true;
      if (error.status === 403) token = null;
      const why = error.status === 401 ? "Reading from another machine needs the gateway's admin token." : "The gateway refused this token.";
      askToken(why).then((is) => { if (is) { needsToken = false; refresh(); listen(); } });
    }
  }
  polling = false;
  if (again) { again = false; refresh(); } else if (!needsToken) next = setTimeout(refresh, document.hidden ? 10 * EVERY_MS : EVERY_MS);
}

function linked(is, why = "") {
  set(find("#link"), is ? "Live" : `${why} Shown: ${told ? `state of ${ago(toldAt)}` : "nothing yet"}.`, is ? "" : "off");
}

// How many calls and errors came between two readings of a tool, for its little chart.
const charts = new Map();
function sample() {
  for (const [name, { calls, errors }] of Object.entries(told.tools)) {
    const chart = charts.get(name) ?? { calls, errors, bars: [] };
    chart.bars.push([Math.max(0, calls - chart.calls), Math.max(0, errors - chart.errors)]);
    chart.bars.splice(0, chart.bars.length - SAMPLES);
    charts.set(name, Object.assign(chart, { calls, errors }));
  }
}

// The parts of the page.
function show() {
  showTotals();
  showWarnings();
  showServers();
  showTools();
  showQueue();
}

const isUp = (server) => ["up", "starting", "resting"].includes(server.status);
const isTrouble = (breaker) => breaker !== undefined && (breaker.status !== "closed" || breaker.mode !== "auto");

function showTotals() {
  const servers = Object.values(told.servers), breakers = Object.values(told.breakers), { sums, queue } = told;
  const up = servers.filter(isUp).length, open = breakers.filter((one) => one.status !== "closed").length;
  const rows = [
    ["servers up", `${up}/${servers.length}`, up < servers.length],
    ["breakers not closed", number.format(open), open > 0],
    ["writes queued", queue.none ? "–" : number.format((queue.waiting ?? 0) + (queue.delivering ?? 0)), false],
    ["calls", number.format(sums.calls), false],
    ["errors", percent(sums.errors, sums.calls), sums.errors * 10 >= sums.calls && sums.errors > 0],
    ["retries", number.format(sums.retries), false],
    ["fallbacks", number.format(sums.fallbacks), false],
  ];
  keyed(find("#totals"), rows.map((row) => [row[0], row]), () => element("div", {}, element("dt"), element("dd")), (node, [name, value, isBad]) => {
    set(node, node.textContent, isBad ? "bad" : "");
    set(find("dt", node), name);
    set(find("dd", node), value);
  });
}

function showWarnings() {
  const all = [];
  for (const [name, server] of Object.entries(told.servers)) {
    if (!isUp(server)) all.push([`server ${name}`, "bad", `Server ${name} is ${server.status}${server.required ? " and required" : ""}${server.lastError ? `: ${server.lastError}` : "."}`]);
    if (server.chaos) all.push([`chaos ${name}`, "bad", `Faults are added to the calls of ${name} on purpose: ${server.chaos.adds}.`]);
    if (server.noise > 0) all.push([`noise ${name}`, "", `Server ${name} wrote ${count(server.noise, "line")} to stdout that ${server.noise === 1 ? "is no message" : "are no messages"}.`]);
  }
  for (const [name, breaker] of Object.entries(told.breakers)) {
    if (breaker.mode === "forced_open") all.push([`forced ${name}`, "bad", `An operator holds the breaker of ${name} open: its calls are refused.`]);
    if (breaker.mode === "disabled") all.push([`forced ${name}`, "", `An operator has switched the breaker of ${name} off.`]);
  }
  if (told.queue.trouble) all.push(["store", "bad", told.queue.trouble]);
  if (told.queue.dead > 0) all.push(["dead", "", `${count(told.queue.dead, "queued write was", "queued writes were")} given up: see below.`]);
  if (told.sums.eventsMissed > 0) all.push(["missed", "", `${count(told.sums.eventsMissed, "event")} came too fast to be counted.`]);
  find("#warnings").hidden = all.length === 0;
  keyed(find("#warnings ul"), all.map((one) => [one[0], one]), () => element("li"), (node, [, kind, text]) => set(node, text, kind));
}

const serverKind = (status) => ({ up: "well", resting: "", starting: "warn" })[status] ?? "bad";

function showServers() {
  const servers = Object.entries(told.servers);
  set(find("#servers h2 small"), count(servers.length, "server"));
  keyed(find("#servers tbody"), servers, (name) => element("tr", {}, element("th", { scope: "row" }, name),
    element("td", {}, element("span")), element("td", { class: "number" }), element("td", { class: "number" }), element("td", { class: "number" }),
    element("td"), element("td"), element("td", { class: "text" }, element("span")),
    element("td", { class: "act" }, element("button", { type: "button", "aria-label": `Restart ${name}`, click: () =>
      change(`${name} is being restarted.`, `/resilience/servers/${encodeURIComponent(name)}/restart`, { method: "POST" }) }, "Restart"))),
  (row, server) => {
    const cells = row.children;
    set(find("span", cells[1]), server.status + (server.load === "denied" ? " · denied" : ""), `state ${serverKind(server.status)}`);
    set(cells[2], server.tools == null ? "–" : number.format(server.tools));
    set(cells[3], server.pids.length > 1 ? `${server.pid} +${server.pids.length - 1}` : String(server.pid ?? "–"));
    set(cells[4], number.format(server.restarts));
    set(cells[5], ago(server.since));
    set(cells[6], server.nextTryMs == null ? "–" : within(server.nextTryMs - sinceTold()));
    const error = server.lastError ?? "–";
    set(find("span", cells[7]), error);
    if (cells[7].title !== error) cells[7].title = error;
    for (const cell of cells) cell.classList.toggle("nothing", cell.textContent === "–" || cell.textContent === "0");
  });
}

const breakerKind = ({ status, mode }) => (status === "open" || mode === "forced_open" ? "bad" : status !== "closed" || mode !== "auto" ? "warn" : "well");
function breakerWord({ status, mode }) {
  if (mode === "forced_open") return "forced open";
  if (mode === "disabled") return "forced closed";
  return status.replace("_", "-");
}

function showTools() {
  const names = [...new Set([...Object.keys(told.tools), ...Object.keys(told.breakers)])];
  const wanted = find("#tool-filter").value.trim().toLowerCase(), calledOnly = find("#tool-called").checked;
  // Trouble first, then what is called, then the rest; by name within, so that cards rarely move.
  const rank = (name) => (isTrouble(told.breakers[name]) ? 0 : told.tools[name]?.calls > 0 ? 1 : 2);
  const fits = (name) => name.toLowerCase().includes(wanted) && (!calledOnly || rank(name) < 2);
  const chosen = names.filter(fits).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  set(find("#tools h2 small"), chosen.length === names.length ? count(names.length, "tool or breaker", "tools and breakers") : `${chosen.length} of ${names.length}`);
  const none = find("#tools .none");
  none.hidden = chosen.length > 0 && chosen.length <= CARDS;
  set(none, chosen.length > CARDS ? `The first ${CARDS} are shown; the filter finds the others.` : names.length ? "No tool fits the filter." : "No server has listed a tool yet.");
  keyed(find("#tools .cards"), chosen.slice(0, CARDS).map((name) => [name, name]), card, updateCard);
}

function card(name) {
  const path = `/resilience/breakers/${encodeURIComponent(name)}`;
  const force = (event) => {
    const words = { open: "is forced open: its calls are refused", closed: "is switched off: its failures open nothing", auto: "decides by itself again" };
    change(`The breaker of ${name} ${words[event.target.value]}.`, `${path}/force`, { method: "POST", body: { state: event.target.value } });
  };
  const values = ["Calls", "Errors", "p50", "p99"].map((label) => element("div", {}, element("dt", {}, label), element("dd")));
  return element("li", { class: "card" },
    element("div", { class: "top" }, element("h3", {}, name), element("span")),
    element("dl", {}, ...values), chart(), element("p", { class: "note" }),
    element("div", { class: "row" },
      element("select", { "aria-label": `Who decides the breaker of ${name}`, change: force },
        element("option", { value: "auto" }, "Breaker: automatic"), element("option", { value: "open" }, "Breaker: force open"), element("option", { value: "closed" }, "Breaker: force closed")),
      element("button", { type: "button", "aria-label": `Reset the breaker of ${name}`, click: () => change(`The breaker of ${name} was reset.`, `${path}/reset`, { method: "POST" }) }, "Reset")));
}

function updateCard(node, name) {
  const tool = told.tools[name], breaker = told.breakers[name];
  const kind = breaker ? breakerKind(breaker) : "";
  if (node.className !== `card ${kind}`) node.className = `card ${kind}`;
  set(find(".top span", node), breaker ? breakerWord(breaker) : "no breaker", `state ${kind}`);
  const isCalled = tool?.calls > 0;
  find("dl", node).hidden = find("svg", node).toggleAttribute("hidden", !isCalled);
  if (isCalled) {
    const [calls, errors, p50, p99] = node.querySelectorAll("dd");
    set(calls, number.format(tool.calls));
    set(errors, percent(tool.errors, tool.calls), tool.errors * 10 >= tool.calls && tool.errors > 0 ? "bad" : "");
    set(p50, duration(tool.p50Ms));
    set(p99, duration(tool.p99Ms));
    draw(find("svg", node), charts.get(name).bars);
  }
  set(find(".note", node), note(tool, breaker));
  find(".row", node).hidden = !breaker;
  const select = find("select", node), mode = { forced_open: "open", disabled: "closed" }[breaker?.mode] ?? "auto";
  if (document.activeElement !== select || select.value !== mode) select.value = mode;
  const isIdle = !breaker || breaker.mode === "forced_open" || (breaker.status === "closed" && breaker.failures === 0);
  find("button", node).disabled = isIdle && document.activeElement !== find("button", node);
}

function note(tool, breaker) {
  const parts = [];
  if (breaker?.retryAfterMs != null) parts.push(`next probe ${within(breaker.retryAfterMs - sinceTold())}`);
  if (breaker?.failures > 0) parts.push(`${count(breaker.failures, "failure")} counted`);
  if (breaker?.trips > 0) parts.push(`opened ${count(breaker.trips, "time")}`);
  if (breaker?.lastFailure != null) parts.push(`failed ${ago(breaker.lastFailure)}`);
  if (tool?.retries > 0) parts.push(count(tool.retries, "retry", "retries"));
  if (tool?.fallbacks > 0) parts.push(count(tool.fallbacks, "fallback"));
  if (tool === undefined) parts.push("shared by several tools");
  else if (tool.calls === 0) parts.push("not called yet");
  return parts.join(" · ");
}

function chart() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${SAMPLES} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const name of ["all", "errors"]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", name);
    svg.append(path);
  }
  return svg;
}

/** Bars of the last readings, the newest at the right: all calls, and the errors among them. */
function draw(svg, bars) {
  const most = Math.max(4, ...bars.map(([calls]) => calls));
  const outline = (which) => bars.map((bar, place) => {
    const height = 19 * bar[which] / most, left = SAMPLES - bars.length + place;
    return height > 0 ? `M${left + .1} 20v${-height.toFixed(1)}h.8V20z` : "";
  }).join("");
  [...svg.children].forEach((path, which) => path.setAttribute("d", outline(which)));
}

function showQueue() {
  const { items, none, trouble } = told.queue, empty = find("#queue .none");
  const total = (told.queue.waiting ?? 0) + (told.queue.delivering ?? 0) + (told.queue.dead ?? 0);
  set(find("#queue h2 small"), none || trouble ? "" : items.length < total ? `the oldest ${items.length} of ${total}` : count(total, "write"));
  find("#queue .wide").hidden = items.length === 0;
  empty.hidden = items.length > 0;
  set(empty, none ? "This gateway keeps no queue; [store] gives it one." : trouble ?? "Nothing waits.");
  keyed(find("#queue tbody"), items.map((item) => [item.id, item]), queueRow, (row, item) => {
    row.item = item;
    const cells = row.children;
    set(cells[1], `${item.server}/${item.tool}`);
    const uncertain = item.mayHaveExecuted ? " · may be done" : "";
    set(find("span", cells[2]), item.state + uncertain, `state ${{ waiting: "warn", delivering: "", dead: "bad" }[item.state] ?? ""}`);
    set(cells[3], number.format(item.attempts));
    set(cells[4], ago(item.enqueued));
    set(cells[5], item.nextAttempt == null ? "–" : item.nextAttempt <= Date.now() ? "due" : within(item.nextAttempt - Date.now()));
    set(find("span", cells[6]), item.lastError ?? "–");
  });
}

function queueRow(id) {
  const path = `/resilience/queue/${encodeURIComponent(id)}`;
  const retry = async () => {
    const { item } = row;
    const isMeant = !item.mayHaveExecuted || await sure(`Send ${id} again?`, `${item.server}/${item.tool} may have been executed already. Sending it again may do it twice.`, "Send again");
    if (isMeant) change(`${id} is sent as soon as its turn comes.`, `${path}/retry`, { method: "POST", body: item.mayHaveExecuted ? { even_if_executed: true } : undefined });
  };
  const drop = async () => {
    const { item } = row;
    if (await sure(`Drop ${id}?`, `${item.server}/${item.tool} will not be executed, and nobody is told so.`, "Drop")) change(`${id} was dropped.`, path, { method: "DELETE" });
  };
  const row = element("tr", {}, element("th", { scope: "row" }, id), element("td"), element("td", {}, element("span")), element("td", { class: "number" }),
    element("td"), element("td"), element("td", { class: "text" }, element("span")),
    element("td", { class: "act" }, element("button", { type: "button", "aria-label": `Retry ${id}`, click: retry }, "Retry"),
      element("button", { type: "button", "aria-label": `Drop ${id}`, click: drop }, "Drop")));
  return row;
}

// Events: a stream that is read with fetch, since EventSource cannot carry the token in a header.
const lines = [];
let lastId = null, listening = false, isPaused = false;
const STATES = ["breaker_changed", "server_loaded", "degraded", "fallback_served", "call_finished", "reloaded"];

async function listen() {
  if (listening || needsToken) return;
  listening = true;
  for (let wait = 1000; ; wait = Math.min(2 * wait, 15000)) {
    try {
      const headers = Object.assign({}, token && { authorization: `Bearer ${token}` }, lastId && { "last-event-id": lastId });
      const answer = await fetch(`/resilience/events?last=${LINES}`, { headers, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) break;
      if (answer.ok) {
        wait = 1000;
        await readEvents(answer.body.pipeThrough(new TextDecoderStream()).getReader());
      }
    } catch { /* it broke off: it is opened again */ }
    await new Promise((done) => setTimeout(done, wait));
  }
  listening = false;
}

async function readEvents(reader) {
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const pieces = (text + value).split("\n\n");
    text = pieces.pop();
    for (const piece of pieces) {
      const data = piece.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data) heard(JSON.parse(data));
    }
  }
}

let soon;
function heard(event) {
  lastId = event.id;
  lines.push(event);
  lines.splice(0, lines.length - 2 * LINES);
  if (STATES.includes(event.event)) soon ??= setTimeout(() => { soon = undefined; refresh(); }, 150);
  drawing ??= requestAnimationFrame(() => { drawing = undefined; showEvents(); });
}
let drawing;

function eventKind(event) {
  if (event.event === "breaker_changed") return { open: "bad", closed: "well" }[event.to] ?? "warn";
  if (event.event === "call_finished") return { ok: "well", fallback: "warn", cancelled: "" }[event.class] ?? "bad";
  if (event.event === "server_loaded") return event.status === "available" ? "well" : "bad";
  if (["degraded", "missed", "authorizer_unavailable", "call_denied", "retry_budget_spent"].includes(event.event)) return "bad";
  return ["retry_scheduled", "fallback_served", "breaker_rejected", "refused", "tool_error_found"].includes(event.event) ? "warn" : "";
}

function eventText({ event, server, tool, id, time, ...rest }) {
  const word = (name) => name.replace(/Ms$/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const value = (name, is) => (name.endsWith("Ms") ? duration(is) : typeof is === "object" && is !== null ? JSON.stringify(is) : String(is));
  if (event === "breaker_changed") return `${rest.from} → ${rest.to}`;
  return Object.entries(rest).filter(([, is]) => is != null && is !== false).map(([name, is]) => `${word(name)} ${value(name, is)}`).join(" · ");
}

function showEvents() {
  if (isPaused) return;
  const wanted = find("#event-filter").value.trim().toLowerCase(), withAttempts = find("#event-attempts").checked;
  const fits = (event) => (withAttempts || !/^(attempt_|call_allowed)/.test(event.event)) && JSON.stringify(event).toLowerCase().includes(wanted);
  const chosen = lines.filter(fits).slice(-LINES).reverse();
  set(find("#events h2 small"), chosen.length ? `the last ${chosen.length}, newest first` : "none yet");
  keyed(find("#events .log"), chosen.map((event) => [event.id, event]), () => element("li", {}, element("time"), element("span"), element("span"), element("span")), (node, event) => {
    if (node.isConnected) return;
    const [time, name, tool, text] = node.children;
    const at = new Date(event.time);
    time.dateTime = event.time;
    set(time, `${at.toTimeString().slice(0, 8)}.${String(at.getMilliseconds()).padStart(3, "0")}`);
    set(name, event.event.replaceAll("_", " "), eventKind(event));
    set(tool, event.tool ?? event.server ?? "");
    set(text, eventText(event));
  });
}

// What an operator does.
find("#enter-token").addEventListener("click", async () => {
  if (token !== null) {
    token = null;
    set(find("#enter-token"), "Enter token");
    say("The token was forgotten.");
  } else if (await askToken("Changes need the gateway's admin token.")) {
    needsToken = false;
    refresh();
    listen();
  }
});
find("#reset-all").addEventListener("click", () => change("Every breaker that had counted failures was reset.", "/resilience/breakers/reset", { method: "POST" }));
for (const control of ["#tool-filter", "#tool-called"]) find(control).addEventListener("input", () => told && showTools());
for (const control of ["#event-filter", "#event-attempts"]) find(control).addEventListener("input", showEvents);
find("#event-pause").addEventListener("click", ({ target }) => {
  isPaused = !isPaused;
  target.setAttribute("aria-pressed", isPaused);
  showEvents();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
  event.preventDefault();
  find("#tool-filter").focus();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => { if (told && !document.hidden) { showServers(); showTools(); showQueue(); if (find("#link").className) linked(false, "The gateway does not answer."); } }, 1000);
refresh();
listen();
