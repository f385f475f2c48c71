// The console. The key is held in a variable: no cookie, no storage; a reload forgets it.
// All that comes from the service is set as text, but the report, whose text was escaped there.
const byId = (id) => document.getElementById(id);
let key = "", bandit = "", modeOf = "", reportOf = 0, timer = 0, shown = 0;

async function ask(path, options = {}) {
  const headers = {...options.headers};
  if (key) headers.authorization = "Bearer " + key;
  if (options.body) headers["content-type"] = "application/json";
  const answer = await fetch(path, {...options, headers, credentials: "omit", cache: "no-store"});
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(found.detail || found.title || "HTTP " + answer.status), {status: answer.status});
  return found;
}
const path = (...parts) => "/v1/" + [bandit, ...parts].map(encodeURIComponent).join("/");
const say = (text, bad) => { byId("said").textContent = text; byId("said").className = bad ? "meta warning" : "meta"; };

function element(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

async function list() {
  const found = await ask("/console/bandits");
  const rows = found.bandits.map((one) => {
    const row = document.createElement("tr"), open = element("button", one.bandit);
    open.type = "button";
    open.onclick = () => show(one.bandit);
    const head = document.createElement("th");
    head.append(open);
    const age = one.model_age_seconds === null ? "no model" : Math.round(one.model_age_seconds) + " s";
    row.append(head, ...[one.mode, one.stale ? "stale" : "fine", age, one.observations, one.pending, one.decisions, one.rewards].map((value) => element("td", String(value))));
    return row;
  });
  const table = document.createElement("table"), top = document.createElement("tr");
  table.className = "q bandits";
  top.append(...["bandit", "mode", "health", "age of the model", "outcomes", "pending", "decided here", "rewards here"].map((name) => element("th", name)));
  table.append(top, ...rows);
  const card = element("div", "", "card full");
  card.append(table);
  byId("list").replaceChildren(card);
}

async function state() {
  const at = shown, found = await ask(path());
  if (at !== shown) return;
  byId("title").textContent = found.bandit;
  byId("state").textContent = `${found.mode} · ${found.observations} outcomes · ${found.pending} pending`;
  byId("actions").textContent = found.actions.filter((one) => one.since).map((one) =>
    `${one.action}: ${one.state} since ${one.since}${one.until ? " until " + one.until : ""}${one.reason ? ": " + one.reason : ""}`).join("\n");
  const issues = found.issues || [];
  byId("issues").hidden = !issues.length;
  byId("issues").querySelector("table").replaceChildren(...issues.map((one) => {
    const row = document.createElement("tr"), head = element("th", String(one.count));
    head.scope = "row";
    const seen = [one.example && `such as ${one.example}`, one.last && `last ${one.last}`].filter(Boolean).join(", ");
    row.append(head, ...[one.what, seen, one.remedy].map((value) => element("td", value)));
    return row;
  }));
  // Not at every refresh: it would undo what somebody is about to choose.
  if (modeOf !== bandit) [modeOf, byId("to").value] = [bandit, found.mode];
}

async function report() {
  const at = shown, found = await ask(path("report"));
  if (at !== shown) return;
  if (found.status !== "ready") {
    byId("report").replaceChildren(element("p", found.status === "computing" ? "The report is being made…" : "There is no report: " + found.why, "wrap none"));
    return;
  }
  if (found.page.as_of === reportOf) return;
  reportOf = found.page.as_of;
  byId("report").innerHTML = found.page.html;
  await draw(found.page.specs);
}

async function refresh() {
  clearTimeout(timer);
  try { await state(); await report(); } catch (error) { say(error.message, true); }
  timer = setTimeout(refresh, document.hidden || reportOf ? 15000 : 3000);
}

// Before anything is asked for: an answer that clears the page could clear what was said since.
// What was asked for earlier is dropped when it comes: it may be another bandit's, or another key's.
function clear() {
  shown += 1;
  clearTimeout(timer);
  byId("bandit").hidden = true;
  byId("report").replaceChildren();
  for (const id of ["title", "state", "actions", "story", "said"]) byId(id).textContent = "";
}

async function show(name) {
  clear();
  [bandit, reportOf] = [name, 0];
  byId("name").value = name;
  try { await state(); } catch (error) { return say(error.message, true); }
  byId("bandit").hidden = false;
  refresh();
}

byId("who").onsubmit = async (event) => {
  event.preventDefault();
  key = byId("key").value.trim();
  const name = byId("name").value.trim();
  clear();
  try { await list(); } catch (error) {
    byId("list").replaceChildren();
    if (!name || error.status === 401) return say(error.message, true);
  }
  if (name) show(name);
};
byId("mode").onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify({mode: byId("to").value, reason: byId("reason").value});
  try {
    const found = await ask(path("mode"), {method: "PUT", body});
    say(`${bandit} is to ${found.mode} from now on: ${found.reason}`);
    byId("reason").value = "";
    setTimeout(refresh, 700);
  } catch (error) { say(error.message, true); }
};
byId("action").onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify({action: byId("which").value.trim(), change: byId("change").value, reason: byId("because").value});
  try {
    const found = await ask(path("actions"), {method: "PUT", body});
    say(`${found.action} is ${found.state} from now on: ${found.reason}`);
    byId("because").value = "";
    setTimeout(refresh, 700);
  } catch (error) { say(error.message, true); }
};
byId("find").onsubmit = async (event) => {
  event.preventDefault();
  try { byId("story").textContent = JSON.stringify(await ask(path("decisions", byId("id").value.trim())), null, 2); }
  catch (error) { byId("story").textContent = error.message; }
};
document.body.dataset.console = "ready";
