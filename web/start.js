// ---- Server, theme, tabs ----
const server = { ready: false, checking: false };

function showStatus(kind, name, more) {
  $("status-dot").className = `dot ${kind}`;
  if ($("model-name").textContent !== name) $("model-name").textContent = name;
  if ($("model-more").textContent !== more) $("model-more").textContent = more;
}

function showLoading(share) {
  $("loading").hidden = share === null;
  if (share === null) return;
  $("loading").firstElementChild.style.width = `${share * 100}%`;
  $("loading").setAttribute("aria-valuenow", String(Math.round(share * 100)));
}

async function checkServer() {
  if (server.checking) return;
  server.checking = true;
  try {
    await request("/health");
    if (!server.ready) {
      const props = await (await request("/props")).json();
      $("status").title = `${props.model_path}, context ${number(props.context)} tokens, ${number(props.parallel)} at a time`;
      document.title = `${props.model} · Bellhop`;
      showStatus("ok", props.model, `${props.architecture} · ${number(props.context)} tokens`);
      server.ready = true;
    }
    showLoading(null);
  } catch (error) {
    server.ready = false;
    const progress = error.answer?.progress;
    showLoading(typeof progress === "number" ? progress : null);
    if (error.status === 503 && typeof progress === "number") showStatus("", "Loading the model", `${Math.round(progress * 100)} %`);
    else if (error.status === 401) showStatus("", "Needs an API key", "");
    else showStatus("bad", error.status === 0 ? "No connection" : error.message, "");
  }
  server.checking = false;
}

function currentTheme() {
  const chosen = stored.read("localStorage", "theme");
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function showTheme() {
  document.documentElement.dataset.theme = currentTheme();
  document.documentElement.style.colorScheme = currentTheme();
  $("theme").setAttribute("aria-label", `Switch to ${currentTheme() === "dark" ? "light" : "dark"} colours`);
  drawMap();
}

const kTabs = ["chat", "experts"];

function showTab(name, focus) {
  for (const tab of kTabs) {
    const selected = tab === name;
    $(`tab-${tab}`).setAttribute("aria-selected", String(selected));
    $(`tab-${tab}`).tabIndex = selected ? 0 : -1;
    $(`panel-${tab}`).hidden = !selected;
  }
  if (focus) $(`tab-${name}`).focus();
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  drawMap();
  pollExperts();
}

function startTabs() {
  kTabs.forEach((tab, at) => {
    $(`tab-${tab}`).addEventListener("click", () => showTab(tab, false));
    $(`tab-${tab}`).addEventListener("keydown", (event) => {
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: -1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      showTab(kTabs.at(next % kTabs.length), true);
    });
  });
  showTab(kTabs.includes(location.hash.slice(1)) ? location.hash.slice(1) : "chat", false);
}

showTheme();
startChat();
startMap();
startTabs();
$("theme").addEventListener("click", () => {
  stored.write("localStorage", "theme", currentTheme() === "dark" ? "light" : "dark");
  showTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { checkServer(); pollExperts(); } });
if (!$("panel-chat").hidden) $("prompt").focus();
checkServer();
let ticks = 0;
setInterval(() => {
  pollExperts();
  ticks += 1;
  if (!document.hidden && (!server.ready || ticks % 10 === 0) && $("key-bar").hidden) checkServer();
}, 1000);
