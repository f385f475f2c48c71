// The console. The tab remembers the key and the bandit (sessionStorage), so that a reload keeps
// them; closing the tab, or signing out, forgets them. There are no cookies.
// All that comes from the service is set as text, but the report, whose text was escaped there.
const byId = (id) => document.getElementById(id);
const remember = (name, value) => value ? sessionStorage.setItem(name, value) : sessionStorage.removeItem(name);
let key = sessionStorage.getItem("key") || "", bandit = sessionStorage.getItem("bandit") || "";
let modeOf = "", reportOf = 0, timer = 0, shown = 0;

async function ask(path, options = {}) {
  const headers = {...options.headers};
  if (key) headers.authorization = "Bearer " + key;
  if (options.body) headers["content-type"] = "application/json";
  const answer = await fetch(path, {...options, headers, credentials: "omit", cache: "no-store"});
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(found.detail || found.title || "HTTP " + answer.status), {status: answer.status});
  return found;
}
const path = (...parts) => "v1/" + [bandit, ...parts].map(encodeURIComponent).join("/");
const say = (text, bad) => { byId("said").textContent = text; byId("said").className = bad ? "meta warning" : "meta"; };

const minute = (time) => time.slice(0, 16).replace("T", " ") + " UTC";

function element(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

async function list() {
  const at = shown, {bandits} = await ask("v1");
  if (at !== shown) return [];
  const rows = bandits.map((one) => {
    const row = document.createElement("tr"), open = element("button", one.bandit);
    open.type = "button";
    open.onclick = () => show(one.bandit);
    const head = document.createElement("th");
    head.append(open);
    const age = one.model_age_seconds === null ? "no model" : Math.round(one.model_age_seconds) + " s";
    const model = one.chosen_version === undefined ? "latest" : "version " + one.chosen_version;
    row.append(head, ...[one.mode, one.stale ? "stale" : "ok", model, age, one.observations, one.pending, one.decisions, one.rewards].map((value) => element("td", value.toLocaleString("en"))));
    return row;
  });
  const table = document.createElement("table"), top = document.createElement("tr");
  table.className = "q bandits";
  top.append(...["bandit", "mode", "health", "decides with", "newest model", "outcomes learned", "pending", "decisions by this process", "rewards by this process"].map((name) => element("th", name)));
  table.append(top, ...rows);
  const card = element("div", "", "card full");
  card.append(table);
  byId("list").replaceChildren(card);
  return bandits.map((one) => one.bandit);
}

async function state() {
  const at = shown, found = await ask(path());
  if (at !== shown) return;
  byId("title").textContent = found.bandit;
  const model = found.chosen_version === undefined ? "" : ` · an operator chose model ${found.chosen_version}`;
  byId("state").textContent = `${found.mode}${model} · ${found.observations.toLocaleString("en")} outcomes learned · ${found.pending.toLocaleString("en")} pending`;
  byId("names").replaceChildren(...found.actions.map((one) => element("option", one.action)));
  byId("actions").textContent = found.actions.filter((one) => one.since).map((one) =>
    `${one.action}: ${one.state} since ${minute(one.since)}${one.until ? " until " + minute(one.until) : ""}${one.reason ? ": " + one.reason : ""}`).join("\n");
  const issues = found.issues || [];
  byId("issues").hidden = !issues.length;
  byId("issues").querySelector("table").replaceChildren(...issues.map((one) => {
    const row = document.createElement("tr"), head = element("th", String(one.count));
    head.scope = "row";
    const seen = [one.example && `such as ${one.example}`, one.last && `last ${minute(one.last)}`].filter(Boolean).join(", ");
    row.append(head, ...[one.what, seen, one.remedy].map((value) => element("td", value)));
    return row;
  }));
  // Not at every refresh: it would undo what somebody is about to choose.
  if (modeOf !== bandit) [modeOf, byId("to").value] = [bandit, found.mode];
}

async function models() {
  const at = shown, found = await ask(path("models"));
  if (at !== shown) return;
  byId("version").replaceChildren(element("option", "latest"), ...found.models.map((one) => {
    const made = element("option", `${one.version}: ${minute(one.made_at)}, ${one.observations.toLocaleString("en")} outcomes learned`);
    made.value = one.version;
    made.selected = one.state === "chosen";
    return made;
  }));
}

async function report() {
  const at = shown, found = await ask(path("report"));
  if (at !== shown) return;
  if (found.status !== "ready") {
    const place = element("div", "", "wrap");
    place.append(element("p", found.status === "computing" ? "The report is being computed…" : "There is no report: " + found.why, "none"));
    byId("report").replaceChildren(place);
    return;
  }
  if (found.page.as_of === reportOf) return;
  reportOf = found.page.as_of;
  byId("report").innerHTML = found.page.html;
  await draw(found.page.specs);
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
    return say(missing ? "This service needs an API key. One with the scope read shows everything." : error.message, !missing);
  }
  remember("key", key);
  signIn(false);
  document.body.classList.toggle("unkeyed", !key);
  const name = names.includes(bandit) ? bandit : names.length === 1 ? names[0] : "";
  if (name) await show(name); else refresh();
  if (!key) say("This service needs no key: the console shows everything and changes nothing. Use belated mode, belated action and belated model to change something.");
}

// Changes something by a form, and says what holds then.
const changes = (form, send) => byId(form).onsubmit = async (event) => {
  event.preventDefault();
  try {
    say(await send((place, body) => ask(path(place), {method: "PUT", body: JSON.stringify(body)})));
    for (const one of byId(form).querySelectorAll("[aria-label=Reason]")) one.value = "";
    setTimeout(refresh, 700);
  } catch (error) { say(error.message, true); }
};
changes("mode", async (put) => {
  const found = await put("mode", {mode: byId("to").value, reason: byId("reason").value});
  return `The mode of ${bandit} is now ${found.mode}: ${found.reason}`;
});
changes("model", async (put) => {
  const version = byId("version").value;
  const found = await put("model", {version: version === "latest" ? version : Number(version), reason: byId("since").value});
  return `${bandit} now decides with model ${found.version}: ${found.reason}`;
});
changes("action", async (put) => {
  const found = await put("actions", {action: byId("which").value.trim(), change: byId("change").value, reason: byId("because").value});
  return `${found.action} is now ${found.state}: ${found.reason}`;
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
