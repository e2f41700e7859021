// ---- Experts ----
const kTierNames = { gpu: "GPU slot", ram: "Host memory", disk: "Disk" };
const kDecay = 0.8;        // of earlier routes, per poll with traffic
const kHistory = 60;      // points of the sparkline
const kLabelWidth = 58, kAxisHeight = 20;
// Share relative to an even split, on a log scale: a quarter of it is cold, 8 times it is hot.
const heatOf = (share, experts) => share <= 0 ? 0 : Math.min(Math.max((Math.log2(share * experts) + 2) / 5, 0.04), 1);

const map = { data: null, heat: [], speeds: [], cursor: null, pointed: false, cell: 0, row: 0, recent: false };

function sum(values) { return values.reduce((total, value) => total + value, 0); }

// Recent routes per expert: differences between polls, older ones fading. The first poll stands for what came before it.
function updateHeat(data) {
  const last = map.data;
  const restarted = !last || data.steps < last.steps || data.routes.length !== last.routes.length || data.experts !== last.experts;
  if (restarted) {
    map.heat = data.routes.map((row) => { const total = sum(row) || 1; return row.map((count) => count / total); });
    map.recent = false;
    map.speeds = [];
    return;
  }
  data.routes.forEach((row, layer) => {
    const fresh = row.map((count, expert) => Math.max(count - last.routes[layer][expert], 0));
    if (sum(fresh) === 0) return;
    map.recent = true;
    map.heat[layer] = map.heat[layer].map((heat, expert) => heat * kDecay + fresh[expert]);
  });
}

function shareOf(layer, expert) {
  const total = sum(map.heat[layer]);
  return total > 0 ? map.heat[layer][expert] / total : 0;
}

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }

function mix(from, to, share) {
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const a = parts(from), b = parts(to);
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * share)).join(" ")})`;
}

function drawMap() {
  const data = map.data;
  if (!data || data.layers === 0 || $("panel-experts").hidden) return;
  const width = $("map-scroll").clientWidth - 6;
  map.cell = Math.min(Math.max(Math.floor((width - kLabelWidth) / data.experts), 4), 40);
  map.row = Math.min(Math.max(Math.floor(392 / data.layers), 7), 76);
  const w = kLabelWidth + map.cell * data.experts, h = map.row * data.layers + kAxisHeight;
  const canvas = $("canvas"), scale = window.devicePixelRatio || 1;
  canvas.width = w * scale;
  canvas.height = h * scale;
  canvas.style.width = `${w}px`;
  canvas.style.height = `${h}px`;
  const paint = canvas.getContext("2d");
  paint.scale(scale, scale);
  paint.font = `11px ${color("sans")}`;
  const cold = color("cell"), tiers = data.tiers.map((tier) => color(tier) || color("ram"));
  const gap = map.cell >= 12 ? 2 : map.cell >= 6 ? 1 : 0.5, rowGap = map.row >= 12 ? 2 : 1;
  const radius = Math.min(4, map.cell / 5);
  for (let layer = 0; layer < data.layers; ++layer) {
    const total = sum(map.heat[layer]);
    for (let expert = 0; expert < data.experts; ++expert) {
      const heat = heatOf(total > 0 ? map.heat[layer][expert] / total : 0, data.experts);
      paint.fillStyle = mix(cold, tiers[data.tier[layer][expert]], 0.16 + 0.84 * heat);
      paint.beginPath();
      paint.roundRect(kLabelWidth + expert * map.cell, layer * map.row, map.cell - gap, map.row - rowGap, radius);
      paint.fill();
    }
  }
  drawAxes(paint, data);
  drawCursor(paint);
}

function drawAxes(paint, data) {
  paint.fillStyle = color("muted");
  paint.textBaseline = "middle";
  paint.textAlign = "left";
  const every = Math.ceil(14 / map.row);
  for (let layer = 0; layer < data.layers; layer += every) paint.fillText(`Layer ${data.moe_layers[layer]}`, 0, (layer + 0.5) * map.row);
  paint.textAlign = "center";
  const step = [1, 2, 4, 8, 16, 32, 64].find((n) => n * map.cell >= 44) ?? 128;
  for (let expert = 0; expert < data.experts; expert += step) {
    paint.fillText(String(expert), kLabelWidth + (expert + 0.5) * map.cell, map.row * data.layers + kAxisHeight / 2 + 3);
  }
}

function drawCursor(paint) {
  if (!map.cursor) return;
  paint.strokeStyle = color("ink");
  paint.lineWidth = 2;
  paint.strokeRect(kLabelWidth + map.cursor.expert * map.cell - 1, map.cursor.layer * map.row - 1, map.cell, map.row);
}

function describe({ layer, expert }) {
  const data = map.data;
  const tier = data.tiers[data.tier[layer][expert]];
  return [`Layer ${data.moe_layers[layer]} · expert ${expert}`, kTierNames[tier] ?? tier, `${number(data.routes[layer][expert])} routes since start`,
    `${number(shareOf(layer, expert) * 100, 2)} % of ${map.recent ? "recent" : "all"} routes`];
}

function showCursor() {
  const tip = $("tip");
  tip.hidden = map.cursor === null;
  if (!map.cursor) return;
  const lines = describe(map.cursor);
  tip.textContent = lines.join("\n");
  $("map-detail").textContent = lines.join(" · ");
  const x = kLabelWidth + (map.cursor.expert + 1) * map.cell + 8, y = map.cursor.layer * map.row;
  const flip = x + tip.offsetWidth > $("map-scroll").scrollLeft + $("map-scroll").clientWidth;
  tip.style.left = `${flip ? Math.max(x - map.cell - tip.offsetWidth - 16, 0) : x}px`;
  tip.style.top = `${Math.min(y, Math.max(map.row * map.data.layers - tip.offsetHeight, 0))}px`;
}

function moveCursor(cursor, pointed) {
  if (cursor && map.cursor && cursor.layer === map.cursor.layer && cursor.expert === map.cursor.expert) return;
  map.cursor = cursor;
  map.pointed = pointed;
  drawMap();
  showCursor();
}

function startMap() {
  $("map").addEventListener("pointermove", (event) => {
    if (!map.data || map.cell === 0) return;
    const box = $("canvas").getBoundingClientRect();
    const expert = Math.floor((event.clientX - box.left - kLabelWidth) / map.cell), layer = Math.floor((event.clientY - box.top) / map.row);
    const inside = expert >= 0 && expert < map.data.experts && layer >= 0 && layer < map.data.layers;
    if (inside) moveCursor({ layer, expert }, true);
    else if (map.pointed) moveCursor(null, false);
  });
  $("map").addEventListener("pointerleave", () => { if (map.pointed) moveCursor(null, false); });
  $("map").addEventListener("focus", () => { if ($("map").matches(":focus-visible") && !map.cursor && map.data?.layers > 0) moveCursor({ layer: 0, expert: 0 }, false); });
  $("map").addEventListener("blur", () => moveCursor(null, false));
  $("map").addEventListener("keydown", (event) => {
    if (!map.data || map.data.layers === 0) return;
    const { layer, expert } = map.cursor ?? { layer: 0, expert: 0 };
    const experts = map.data.experts - 1, layers = map.data.layers - 1;
    const next = { ArrowLeft: [layer, expert - 1], ArrowRight: [layer, expert + 1], ArrowUp: [layer - 1, expert], ArrowDown: [layer + 1, expert],
      Home: [layer, 0], End: [layer, experts], PageUp: [0, expert], PageDown: [layers, expert] }[event.key];
    if (!next) return;
    event.preventDefault();
    moveCursor({ layer: Math.min(Math.max(next[0], 0), layers), expert: Math.min(Math.max(next[1], 0), experts) }, false);
    const x = kLabelWidth + map.cursor.expert * map.cell, box = $("map-scroll");
    if (x < box.scrollLeft + kLabelWidth) box.scrollLeft = x - kLabelWidth;
    if (x + map.cell > box.scrollLeft + box.clientWidth) box.scrollLeft = x + map.cell - box.clientWidth;
  });
  new ResizeObserver(() => { drawMap(); showCursor(); }).observe($("map-scroll"));
}

function figure(id, value, unit) { $(id).replaceChildren(value, ...(unit ? [make("small", {}, unit)] : [])); }

function bars(id, rows) {
  $(id).replaceChildren(...rows.map(({ label, where, text, share, tint }) => {
    const fill = make("i", {});
    fill.style.width = `${Math.min(share, 1) * 100}%`;
    fill.style.background = `var(--${tint})`;
    const name = make("span", {}, label, ...(where ? [make("em", {}, ` ${where}`)] : []));
    return make("div", {}, make("div", { className: "bar-label" }, name, make("b", {}, text)), make("div", { className: "bar", ariaHidden: "true" }, fill));
  }));
}

function drawTiles(data) {
  figure("tile-speed", rate(data.tokens_per_second), "tok/s");
  const measured = data.measured_ms_per_token, predicted = data.predicted_ms_per_token;
  figure("tile-ms", measured === null ? "–" : number(measured, measured < 100 ? 2 : 0), measured === null ? "" : "ms");
  $("tile-ms-sub").textContent = predicted === null ? "no prediction" : `predicted ${number(predicted, 2)} ms`;
  figure("tile-hits", data.hit_rate === null ? "–" : number(data.hit_rate * 100, 1), data.hit_rate === null ? "" : "%");
  $("tile-hits-sub").textContent = data.hit_rate === null ? "no routes counted yet" : !data.tier.flat().some((tier) => data.tiers[tier] === "gpu") ? "no expert has a GPU slot" : `${short(data.hits)} hits, ${short(data.misses)} misses`;
  figure("tile-flight", number(data.active), `of ${number(data.slots)}`);
  $("tile-flight-sub").textContent = data.queued > 0 ? `${number(data.queued)} waiting` : "nothing waits";
  $("slots").replaceChildren(...Array.from({ length: Math.min(data.slots, 32) }, (_, i) => make("i", { className: i < data.active ? "on" : "" })));
  map.speeds.push(data.tokens_per_second);
  if (map.speeds.length > kHistory) map.speeds.shift();
  const top = Math.max(...map.speeds, 1e-9), step = 240 / (kHistory - 1), start = 240 - (map.speeds.length - 1) * step;
  const line = map.speeds.map((speed, i) => `${(start + i * step).toFixed(1)} ${(38 - 35 * speed / top).toFixed(1)}`).join("L");
  document.querySelector(".spark-line").setAttribute("d", `M${line}`);
  document.querySelector(".spark-area").setAttribute("d", `M${start.toFixed(1)} 40L${line}L240 40Z`);
  $("spark").setAttribute("aria-label", `Tokens per second over ${map.speeds.length} seconds: now ${rate(data.tokens_per_second)}, highest ${rate(top)}`);
}

// Time per token of what ran since the last poll with traffic; before any, since start.
function drawTimes(data, last) {
  const tokens = data.decode_tokens + data.prompt_tokens;
  const before = last ? last.decode_tokens + last.prompt_tokens : 0;
  if (tokens === before && last && map.times) return;
  const recent = last && before > 0 && tokens > before;
  const count = recent ? tokens - before : tokens;
  map.times = Object.fromEntries(["gpu", "cpu", "pcie"].map((lane) => [lane, count > 0 ? Math.max(data.time_ms[lane] - (recent ? last.time_ms[lane] : 0), 0) / count : 0]));
  const top = Math.max(...Object.values(map.times), 1e-9);
  const names = { gpu: ["GPU", "gpu"], cpu: ["CPU", "ram"], pcie: ["PCIe", "disk"] };
  $("time-note").textContent = count === 0 ? "No token yet." : recent ? "The latest tokens, prompt included" : "All tokens since start, prompt included";
  bars("time-bars", Object.entries(map.times).map(([lane, value]) => ({ label: names[lane][0], tint: names[lane][1], text: value > 0 ? milliseconds(value) : "0", share: value / top })));
}

const tintOf = (where) => /gpu|hbm|vram|device/i.test(where) ? "gpu" : /disk|file/i.test(where) ? "disk" : "ram";

function drawMemory(data) {
  const rows = [...data.memory].sort((a, b) => b.bytes - a.bytes), total = sum(rows.map((row) => row.bytes));
  $("memory-note").textContent = `${bytes(total)} in all`;
  bars("memory-bars", rows.map((row) => ({ label: row.tag, where: row.where, text: bytes(row.bytes), share: total > 0 ? row.bytes / rows[0].bytes : 0, tint: tintOf(row.where) })));
}

function drawLists(data) {
  const all = map.heat.flatMap((row, layer) => { const total = sum(row) || 1; return row.map((heat, expert) => ({ layer, expert, share: heat / total })); });
  const busiest = all.filter((entry) => entry.share > 0).sort((a, b) => b.share - a.share).slice(0, 12);
  $("busiest").replaceChildren(...busiest.map(({ layer, expert, share }) => {
    const dot = make("i", {});
    dot.style.background = `var(--${data.tiers[data.tier[layer][expert]]})`;
    return make("li", {}, dot, `Layer ${data.moe_layers[layer]}, expert ${expert}`, make("b", {}, `${number(share * 100, 1)} %`));
  }));
  if (busiest.length === 0) $("busiest").append(make("li", {}, "", "No routes yet: start a chat."));
  const entries = [["Tokens generated", short(data.decode_tokens)], ["Prompt tokens", short(data.prompt_tokens)], ["Decode steps", short(data.steps)],
    ["Doorbell rings", short(data.rings)], ["Layers without a cold expert", short(data.zero_cold_layers)], ["Promotions", short(data.promotions)],
    ["Read from memory", bytes(data.bytes.dram)], ["Moved over PCIe", bytes(data.bytes.pcie)]];
  $("totals").replaceChildren(...entries.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function drawLegend(tiers) {
  $("legend").replaceChildren(...tiers.map((tier) => {
    const swatch = make("i", {});
    swatch.style.background = `var(--${tier})`;
    return make("span", {}, swatch, kTierNames[tier] ?? tier);
  }), make("span", {}, "cold", make("i", { className: "ramp" }), "hot"));
}

function drawExperts(data) {
  const last = map.data;
  updateHeat(data);
  map.data = data;
  const dense = data.layers === 0;
  $("empty").hidden = !dense;
  for (const part of [document.querySelector(".map-card"), $("busiest").parentElement]) part.hidden = dense;
  drawTiles(data);
  drawTimes(data, last && data.steps >= last.steps ? last : null);
  drawMemory(data);
  drawLists(data);
  if (!last || last.tiers.join() !== data.tiers.join()) drawLegend(data.tiers);
  if (map.cursor && (map.cursor.layer >= data.layers || map.cursor.expert >= data.experts)) map.cursor = null;
  drawMap();
  showCursor();
}

let polling = false;

async function pollExperts() {
  if (polling || document.hidden || $("panel-experts").hidden) return;
  polling = true;
  try {
    drawExperts(await (await request("/experts")).json());
    $("experts-problem").hidden = true;
  } catch (error) {
    $("experts-problem").textContent = error.message;
    $("experts-problem").hidden = false;
  }
  polling = false;
}
