// The console. The tab stores the key and the bandit in sessionStorage, so that they survive a
// reload. They are discarded when the user closes the tab or signs out. There are no cookies.
// Data from the service is inserted as text, except for the report, which the service escapes.
const byId = (id) => document.getElementById(id);
const remember = (name, value) => value ? sessionStorage.setItem(name, value) : sessionStorage.removeItem(name);
let key = sessionStorage.getItem("key") || "", bandit = sessionStorage.getItem("bandit") || "";
let modeOf = "", reportOf = 0, timer = 0, shown = 0;

async function ask(path, options = {}) {
  const headers = {...options.headers};
  if (key) headers.authorization = "Bearer " + key;
  if (options.body) headers["content-type"] = "application/json";
  const response = await fetch(path, {...options, headers, credentials: "omit", cache: "no-store"});
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(body.detail || body.title || "HTTP " + response.status), {status: response.status});
  return body;
}
const path = (...parts) => "v1/" + [bandit, ...parts].map(encodeURIComponent).join("/");
const say = (text, bad) => { byId("said").textContent = text; byId("said").className = bad ? "meta warning" : "meta"; };

const minute = (time) => time.slice(0, 16).replace("T", " ") + " UTC";

function element(tag, text, name) {
  const node = document.createElement(tag);
  node.textContent = text;
  if (name) node.className = name;
  return node;
}

async function list() {
  const at = shown, {bandits} = await ask("v1");
  if (at !== shown) return [];
  const rows = bandits.map((item) => {
    const row = document.createElement("tr"), open = element("button", item.bandit);
    open.type = "button";
    open.onclick = () => show(item.bandit);
    const head = document.createElement("th");
    head.append(open);
    const age = item.model_age_seconds === null ? "no model" : Math.round(item.model_age_seconds) + " s";
    const model = item.chosen_version === undefined ? "latest" : "version " + item.chosen_version;
    row.append(head, ...[item.mode, item.stale ? "stale" : "ok", model, age, item.observations, item.pending, item.decisions, item.rewards].map((value) => element("td", value.toLocaleString("en"))));
    return row;
  });
  const table = document.createElement("table"), top = document.createElement("tr");
  table.className = "q bandits";
  top.append(...["bandit", "mode", "health", "model", "model age", "outcomes learned", "pending", "decisions by this process", "rewards by this process"].map((name) => element("th", name)));
  table.append(top, ...rows);
  const card = element("div", "", "card full");
  card.append(table);
  byId("list").replaceChildren(card);
  return bandits.map((item) => item.bandit);
}

async function state() {
  const at = shown, response = await ask(path());
  if (at !== shown) return;
  byId("title").textContent = response.bandit;
  const model = response.chosen_version === undefined ? "" : ` · an operator chose model ${response.chosen_version}`;
  byId("state").textContent = `${response.mode}${model} · ${response.observations.toLocaleString("en")} outcomes learned · ${response.pending.toLocaleString("en")} pending`;
  byId("names").replaceChildren(...response.actions.map((item) => element("option", item.action)));
  byId("actions").textContent = response.actions.filter((item) => item.since).map((item) =>
    `${item.action}: ${item.state} since ${minute(item.since)}${item.until ? " until " + minute(item.until) : ""}${item.reason ? ": " + item.reason : ""}`).join("\n");
  const issues = response.issues || [];
  byId("issues").hidden = !issues.length;
  byId("issues").querySelector("table").replaceChildren(...issues.map((item) => {
    const row = document.createElement("tr"), head = element("th", String(item.count));
    head.scope = "row";
    const seen = [item.example && `such as ${item.example}`, item.last && `last ${minute(item.last)}`].filter(Boolean).join(", ");
    row.append(head, ...[item.what, seen, item.remedy].map((value) => element("td", value)));
    return row;
  }));
  // Do not do this on every refresh, because it would reset the user's selection.
  if (modeOf !== bandit) [modeOf, byId("to").value] = [bandit, response.mode];
}

async function models() {
  const at = shown, response = await ask(path("models"));
  if (at !== shown) return;
  byId("version").replaceChildren(element("option", "latest"), ...response.models.map((item) => {
    const node = element("option", `${item.version}: ${minute(item.made_at)}, ${item.observations.toLocaleString("en")} outcomes learned`);
    node.value = item.version;
    node.selected = item.state === "chosen";
    return node;
  }));
}

async function report() {
  const at = shown, response = await ask(path("report"));
  if (at !== shown) return;
  if (response.status !== "ready") {
    const place = element("div", "", "wrap");
    place.append(element("p", response.status === "computing" ? "The report is being computed…" : "There is no report: " + response.why, "none"));
    byId("report").replaceChildren(place);
    return;
  }
  if (response.page.as_of === reportOf) return;
  reportOf = response.page.as_of;
  byId("report").innerHTML = response.page.html;
  await draw(response.page.specs);
}

async function refresh() {
  clearTimeout(timer);
  const at = shown;
  try {
    await list();
    if (!byId("bandit").hidden) { await state(); await report(); }
  } catch (error) { if (at === shown) say(error.message, true); }
  if (at === shown) timer = setTimeout(refresh, document.hidden || reportOf ? 15000 : 3000);
}

// Call this before sending requests, so that responses do not clear newer messages. Responses to
// earlier requests are ignored, because they may be for a different bandit or key.
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
  remember("bandit", name);
  try { await state(); await models(); } catch (error) { return say(error.message, true); }
  byId("bandit").hidden = false;
  refresh();
}

const signIn = (needed) => {
  byId("key").hidden = byId("open").hidden = !needed;
  byId("leave").hidden = needed || !key;
};

async function start() {
  clear();
  let names;
  try { names = await list(); } catch (error) {
    byId("list").replaceChildren();
    signIn(true);
    if (error.status === 401) remember("key", "");
    const missing = error.status === 401 && !key;
    return say(missing ? "This service requires an API key. A key with the read scope can see everything." : error.message, !missing);
  }
  remember("key", key);
  signIn(false);
  document.body.classList.toggle("unkeyed", !key);
  const name = names.includes(bandit) ? bandit : names.length === 1 ? names[0] : "";
  if (name) await show(name); else refresh();
  if (!key) say("This service requires no key, so the console is read-only. To change something, use belated mode, belated action or belated model.");
}

// Submits a form that changes something and displays the result.
const changes = (form, send) => byId(form).onsubmit = async (event) => {
  event.preventDefault();
  try {
    say(await send((place, body) => ask(path(place), {method: "PUT", body: JSON.stringify(body)})));
    for (const item of byId(form).querySelectorAll("[aria-label=Reason]")) item.value = "";
    setTimeout(refresh, 700);
  } catch (error) { say(error.message, true); }
};
changes("mode", async (put) => {
  const response = await put("mode", {mode: byId("to").value, reason: byId("reason").value});
  return `The mode of ${bandit} is now ${response.mode}: ${response.reason}`;
});
changes("model", async (put) => {
  const version = byId("version").value;
  const response = await put("model", {version: version === "latest" ? version : Number(version), reason: byId("since").value});
  return `${bandit} now decides with model ${response.version}: ${response.reason}`;
});
changes("action", async (put) => {
  const response = await put("actions", {action: byId("which").value.trim(), change: byId("change").value, reason: byId("because").value});
  return `${response.action} is now ${response.state}: ${response.reason}`;
});
byId("find").onsubmit = async (event) => {
  event.preventDefault();
  try { byId("story").textContent = JSON.stringify(await ask(path("decisions", byId("id").value.trim())), null, 2); }
  catch (error) { byId("story").textContent = error.message; }
};
byId("who").onsubmit = (event) => {
  event.preventDefault();
  key = byId("key").value.trim();
  byId("key").value = "";
  start();
};
byId("leave").onclick = () => {
  sessionStorage.clear();
  key = bandit = "";
  start();
};
start().finally(() => { document.body.dataset.console = "ready"; });
