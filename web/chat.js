// ---- Chat ----
const kSuggestions = ["Tell me a story.", "What is a lighthouse?", "Explain a Python function.", "Write a short psalm."];
const kSampling = ["temperature", "top_p", "max_tokens", "seed"];
const chat = { messages: [], running: null };

// The objects in the data of a stream of server-sent events; the stream may be cut anywhere.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split(/\r\n|\n/);
    rest = done ? "" : lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line !== "" || data.length === 0) continue;
      const text = data.join("\n");
      data = [];
      if (text === "[DONE]") return;
      yield JSON.parse(text);
    }
    if (done) throw new ServerError(0, "The connection ended before the answer did.");
  }
}

// Speaks whole sentences to screen readers while text streams, so that no word is read twice.
class Announcer {
  constructor() { this.at = 0; this.last = 0; }
  update(text, final) {
    const now = performance.now();
    if (!final && now - this.last < 2500) return;
    let end = text.length;
    if (!final) {
      const fresh = text.slice(this.at);
      const stop = Math.max(fresh.lastIndexOf(". "), fresh.lastIndexOf("? "), fresh.lastIndexOf("! "), fresh.lastIndexOf("\n"));
      if (stop < 0) return;
      end = this.at + stop + 1;
    }
    $("spoken").textContent = text.slice(this.at, end);
    this.at = end;
    this.last = now;
  }
}

function atBottom() {
  const box = $("conversation");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 60;
}

function addUser(text) {
  $("conversation").append(make("article", { className: "message user", ariaLabel: "You" }, make("div", { className: "bubble" }, text)));
}

// One answer on the screen; redrawn at most once a frame, and less often when that takes long.
class AnswerView {
  constructor() {
    this.text = "";
    this.reasoning = "";
    this.body = make("div", { className: "body" }, make("p", {}));
    this.thoughts = make("div", {});
    this.details = make("details", { className: "reasoning", hidden: true }, make("summary", {}, "Reasoning"), this.thoughts);
    this.foot = make("div", { className: "foot" });
    this.root = make("article", { className: "message assistant streaming", ariaLabel: "Answer" }, make("div", { className: "who" }, "Bellhop"), this.details, this.body, this.foot);
    this.root.setAttribute("aria-busy", "true");
    this.announcer = new Announcer();
    this.cost = 0;
    $("conversation").append(this.root);
  }
  add(delta) {
    this.text += delta.content ?? "";
    this.reasoning += delta.reasoning_content ?? "";
    if (this.timer !== undefined) return;
    this.timer = setTimeout(() => requestAnimationFrame(() => this.draw()), Math.min(this.cost * 4, 500));
  }
  draw() {
    this.timer = undefined;
    const follow = atBottom();
    const start = performance.now();
    this.body.replaceChildren(markdown(this.text));
    if (this.body.childElementCount === 0 && this.reasoning === "") this.body.append(make("p", {}));
    this.details.hidden = this.reasoning === "";
    this.thoughts.textContent = this.reasoning;
    this.cost = performance.now() - start;
    this.announcer.update(this.text, false);
    if (follow) $("conversation").scrollTop = $("conversation").scrollHeight;
  }
  end(figures, failure) {
    clearTimeout(this.timer);
    this.draw();
    this.root.classList.remove("streaming");
    this.root.removeAttribute("aria-busy");
    if (this.text !== "") {
      const copy = make("button", { className: "ghost", type: "button" }, "Copy");
      copy.addEventListener("click", () => copyText(copy, this.text));
      this.foot.append(copy);
    }
    this.foot.append(...figures.map((figure) => make("span", {}, figure)));
    if (failure) this.root.append(make("div", { className: "failure", role: "alert" }, failure));
    this.announcer.update(this.text, true);
    $("conversation").scrollTop = $("conversation").scrollHeight;
  }
}

function requestBody() {
  const system = $("system").value.trim();
  const messages = chat.messages.map(({ role, content }) => ({ role, content }));
  if (system !== "") messages.unshift({ role: "system", content: system });
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const name of kSampling) {
    if ($(name).value !== "") body[name] = Number($(name).value);
  }
  return body;
}

function figuresOf({ usage, timings, finish, started, first }) {
  const figures = [];
  const speed = timings?.predicted_per_second || (usage && first ? usage.completion_tokens * 1000 / (performance.now() - first) : 0);
  if (speed > 0) figures.push(`${rate(speed)} tokens/s`);
  const generated = usage?.completion_tokens ?? timings?.predicted_n;
  if (generated !== undefined) figures.push(`${number(generated)} tokens`);
  const prompt = usage?.prompt_tokens;
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? timings?.cache_n ?? 0;
  if (prompt !== undefined) figures.push(`prompt ${number(prompt)}${cached > 0 ? ` (${number(cached)} cached)` : ""}`);
  if (first) figures.push(`first token ${milliseconds(first - started)}`);
  if (finish === "length") figures.push("cut off at the limit");
  if (finish === "stopped") figures.push("stopped");
  return figures;
}

function setRunning(controller) {
  chat.running = controller;
  const busy = controller !== null;
  const hadFocus = document.activeElement === $("stop") || document.activeElement === $("send");
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  $("new-chat").disabled = false;
  $("regenerate").disabled = busy || !chat.messages.some((message) => message.role === "user");
  if (hadFocus) $("prompt").focus();
}

async function answer() {
  const controller = new AbortController();
  setRunning(controller);
  const view = new AnswerView();
  $("conversation").scrollTop = $("conversation").scrollHeight;
  const seen = { started: performance.now() };
  let failure = "";
  try {
    const response = await request("/v1/chat/completions", { body: requestBody(), signal: controller.signal });
    for await (const event of events(response.body)) {
      if (event.error) throw new ServerError(0, event.error.message);
      seen.usage = event.usage ?? seen.usage;
      seen.timings = event.timings ?? seen.timings;
      const choice = event.choices?.[0];
      if (!choice) continue;
      seen.finish = choice.finish_reason ?? seen.finish;
      if (choice.delta?.content || choice.delta?.reasoning_content) seen.first ??= performance.now();
      view.add(choice.delta ?? {});
    }
  } catch (error) {
    if (controller.signal.aborted) seen.finish = "stopped";
    else failure = error.message;
  }
  const current = chat.running === controller;  // false: a new chat began meanwhile
  if (current && (view.text !== "" || failure === "")) chat.messages.push({ role: "assistant", content: view.text });
  view.end(figuresOf(seen), failure);
  if (current) setRunning(null);
}

function send(text) {
  if (text.trim() === "" || chat.running) return;
  if (!$("composer").checkValidity() || !kSampling.every((name) => $(name).reportValidity())) return;
  $("welcome").hidden = true;
  chat.messages.push({ role: "user", content: text });
  addUser(text);
  $("prompt").value = "";
  fitPrompt();
  answer();
}

function regenerate() {
  if (chat.running) return;
  while (chat.messages.length > 0 && chat.messages.at(-1).role === "assistant") chat.messages.pop();
  if (chat.messages.length === 0) return;
  while ($("conversation").lastElementChild.classList.contains("assistant")) $("conversation").lastElementChild.remove();
  answer();
}

function newChat() {
  const running = chat.running;
  chat.messages = [];
  setRunning(null);
  running?.abort();
  $("conversation").replaceChildren($("welcome"));
  $("welcome").hidden = false;
  $("prompt").focus();
}

function fitPrompt() {
  const prompt = $("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function showSettings(open) {
  $("settings").hidden = !open;
  $("open-settings").setAttribute("aria-expanded", String(open));
  (open ? $("system") : $("open-settings")).focus();
}

function startChat() {
  for (const text of kSuggestions) {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => { $("prompt").focus(); send(text); });
    $("suggestions").append(button);
  }
  for (const name of [...kSampling, "system"]) {
    $(name).value = stored.read("localStorage", name);
    $(name).addEventListener("input", () => stored.write("localStorage", name, $(name).value));
  }
  $("composer").addEventListener("submit", (event) => { event.preventDefault(); send($("prompt").value); });
  $("prompt").addEventListener("input", fitPrompt);
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send($("prompt").value);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (chat.running) chat.running.abort();
    else if ($("settings").contains(document.activeElement)) showSettings(false);
  });
  $("stop").addEventListener("click", () => chat.running?.abort());
  $("regenerate").addEventListener("click", regenerate);
  $("new-chat").addEventListener("click", newChat);
  $("open-settings").addEventListener("click", () => showSettings($("settings").hidden));
  $("close-settings").addEventListener("click", () => showSettings(false));
  $("reset-settings").addEventListener("click", () => {
    for (const name of [...kSampling, "system"]) {
      $(name).value = "";
      stored.write("localStorage", name, "");
    }
  });
  setApiKey(apiKey);
  $("key-setting").addEventListener("change", () => { setApiKey($("key-setting").value); checkServer(); });
  $("key-bar").addEventListener("submit", (event) => {
    event.preventDefault();
    setApiKey($("key").value);
    $("key-bar").hidden = true;
    $("prompt").focus();
    checkServer();
  });
}
