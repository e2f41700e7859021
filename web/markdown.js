// A small part of Markdown, as elements. Model text is only ever inserted as text nodes.
function inline(parent, text) {
  const pattern = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(\S(?:[\s\S]*?\S)?)\*\*|(?<![\w*])\*([^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])/g;
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parent.append(text.slice(at, match.index));
    if (match[2] !== undefined) parent.append(make("code", {}, match[2].trim()));
    else if (match[3] !== undefined) inline(parent.appendChild(make("strong", {})), match[3]);
    else parent.append(make("em", {}, match[4]));
    at = match.index + match[0].length;
  }
  parent.append(text.slice(at));
  return parent;
}

function codeBlock(language, code) {
  const copy = make("button", { className: "ghost", type: "button" }, "Copy");
  copy.addEventListener("click", () => copyText(copy, code));
  return make("div", { className: "code" },
    make("div", { className: "code-head" }, make("span", {}, language || "code"), copy),
    make("pre", { tabIndex: 0 }, make("code", {}, code)));
}

async function copyText(button, text) {
  let done = true;
  try { await navigator.clipboard.writeText(text); } catch { done = copyBySelection(text); }
  const label = button.dataset.label ??= button.textContent;
  button.textContent = done ? "Copied" : "Copying is not allowed here";
  setTimeout(() => { button.textContent = label; }, 1500);
}

// Pages that are not served from localhost or over TLS have no clipboard interface.
function copyBySelection(text) {
  const focused = document.activeElement;
  const area = document.body.appendChild(make("textarea", { className: "sr", value: text }));
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const kHeading = /^ {0,3}#{1,6}\s+(.*?)\s*#*$/;
const kBullet = /^\s{0,7}[-*+]\s+(.*)$/;
const kNumbered = /^\s{0,7}(\d{1,9})[.)]\s+(.*)$/;
const kQuote = /^ {0,3}> ?(.*)$/;

function listBlock(lines, at, ordered) {
  const pattern = ordered ? kNumbered : kBullet;
  const list = make(ordered ? "ol" : "ul", {});
  if (ordered) list.start = Number(lines[at].match(kNumbered)[1]);
  let text = null;
  const close = () => { if (text !== null) list.append(inline(make("li", {}), text)); };
  for (; at < lines.length; ++at) {
    const item = lines[at].match(pattern);
    if (item) {
      close();
      text = item[item.length - 1];
    } else if (/^\s{2,}\S/.test(lines[at]) && !kFence.test(lines[at])) {
      text += `\n${lines[at].trim()}`;
    } else {
      break;
    }
  }
  close();
  return [list, at];
}

function markdown(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks = document.createDocumentFragment();
  const starts = (line) => kFence.test(line) || kHeading.test(line) || kBullet.test(line) || kNumbered.test(line) || kQuote.test(line);
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(kFence);
    if (line.trim() === "") {
      at += 1;
    } else if (fence) {
      let end = at + 1;
      while (end < lines.length && !(lines[end].trim().startsWith(fence[1]) && /^[`~\s]*$/.test(lines[end]))) end += 1;
      blocks.append(codeBlock(fence[2], lines.slice(at + 1, end).join("\n")));
      at = end + 1;
    } else if (kHeading.test(line)) {
      blocks.append(inline(make("h4", {}), line.match(kHeading)[1]));
      at += 1;
    } else if (kBullet.test(line) || kNumbered.test(line)) {
      const [list, end] = listBlock(lines, at, !kBullet.test(line));
      blocks.append(list);
      at = end;
    } else {
      const quote = kQuote.test(line);
      let end = at + 1;
      while (end < lines.length && lines[end].trim() !== "" && (quote ? kQuote.test(lines[end]) : !starts(lines[end]))) end += 1;
      const part = lines.slice(at, end).map((l) => quote ? l.match(kQuote)[1] : l).join("\n");
      blocks.append(inline(make(quote ? "blockquote" : "p", {}), part));
      at = end;
    }
  }
  return blocks;
}
