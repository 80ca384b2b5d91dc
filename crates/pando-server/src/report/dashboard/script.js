"use strict";
// Polls /stats.json, takes differences of counters and histograms between two answers, and draws
// them. Text goes into the page as text only.

const POLL_MS = 2000;
const PATIENCE_MS = 5000;
const KEPT_MS = 15 * 60 * 1000 + 3 * POLL_MS;
const HEIGHT = 150;
const MARGIN = { left: 58, right: 8, top: 8, bottom: 18 };
const UNKNOWN = "\u2013";
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

// How numbers are written.

function digits(value) {
  if (value === 0) return "0";
  if (value >= 99.95) return value.toFixed(0);
  return Number(value.toPrecision(3)).toString();
}

function scaled(value, steps, units) {
  let index = 0;
  while (index + 1 < units.length && value >= steps * 0.9995) {
    value /= steps;
    index += 1;
  }
  return digits(value) + units[index];
}

const isKnown = (value) => value !== null && Number.isFinite(value);
const known = (show) => (value) => (isKnown(value) ? show(value) : UNKNOWN);
const count = known((value) => scaled(value, 1000, ["", "k", "M", "G", "T"]));
const perSecond = known((value) => count(value) + "/s");
const bytes = known((value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]));
const bytesPerSecond = known((value) => bytes(value) + "/s");
const percent = known((value) => digits(100 * value) + " %");
const time = known((ns) => {
  const [value, unit] = ns < 999.5 ? [ns, " ns"] : ns < 999.5e3 ? [ns / 1e3, " \u00b5s"]
    : ns < 999.5e6 ? [ns / 1e6, " ms"] : [ns / 1e9, " s"];
  return digits(value) + unit;
});

function age(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Histograms: count, sum, and pairs of the largest value of a bucket and its count.

function between(now, before) {
  if (!now) return null;
  if (!before) return now;
  const old = new Map(before.buckets);
  const buckets = [];
  for (const [end, count] of now.buckets) {
    const left = count - (old.get(end) ?? 0);
    if (left < 0) return now;
    old.delete(end);
    if (left > 0) buckets.push([end, left]);
  }
  // A bucket that is gone: the statistics were reset.
  if (old.size > 0 || now.count < before.count) return now;
  return { count: now.count - before.count, sum: now.sum - before.sum, buckets };
}

function merged(histograms) {
  const sums = new Map();
  const all = { count: 0, sum: 0, buckets: [] };
  for (const one of histograms) {
    if (!one) continue;
    all.count += one.count;
    all.sum += one.sum;
    for (const [end, count] of one.buckets) sums.set(end, (sums.get(end) ?? 0) + count);
  }
  all.buckets = [...sums].sort((a, b) => a[0] - b[0]);
  return all;
}

function percentile(histogram, share) {
  if (!histogram) return null;
  const all = histogram.buckets.reduce((sum, [, count]) => sum + count, 0);
  const wanted = Math.max(1, Math.ceil(share * all));
  let seen = 0;
  for (const [end, count] of histogram.buckets) {
    seen += count;
    if (seen >= wanted) return end;
  }
  return null;
}

// Two answers, and what happened between them.

class Interval {
  constructor(now, before) {
    this.now = now;
    const isOfRun = before && before.run_id === now.run_id && before.at < now.at;
    this.before = isOfRun ? before : null;
    this.seconds = this.before ? (now.at - this.before.at) / 1000 : 1;
    const commands = Object.entries(now.commands).map(([name, figures]) => {
      const then = this.before?.commands[name];
      const failures = (of) => (of ? of.rejected + of.failed : 0);
      return {
        name,
        spread: this.before ? between(figures.latency, then?.latency) : null,
        failures: this.before
          ? Math.max(0, failures(figures) - failures(then)) / this.seconds : null,
      };
    });
    this.commands = commands.filter((of) => of.spread && of.spread.count > 0);
    this.allCommands = merged(this.commands.map((of) => of.spread));
  }

  growth(name) {
    if (!this.before) return null;
    const difference = this.now.counters[name] - this.before.counters[name];
    return difference >= 0 ? difference : null;
  }

  rate(name) {
    const growth = this.growth(name);
    return growth === null ? null : growth / this.seconds;
  }

  gauge(name) {
    return this.now.gauges[name] ?? null;
  }

  spread(name) {
    return this.before ? between(this.now.histograms[name], this.before.histograms[name]) : null;
  }

  spreadRate(name) {
    const spread = this.spread(name);
    return spread ? spread.count / this.seconds : null;
  }

  share(part, rest) {
    if (part === null || rest === null || part + rest <= 0) return null;
    return part / (part + rest);
  }

  cached() {
    const [gets, missed] = [this.growth("gets"), this.growth("gets_missed")];
    return gets === null || missed === null ? null : this.share(Math.max(0, gets - missed), missed);
  }

  found() {
    return this.share(this.growth("keyspace_hits"), this.growth("keyspace_misses"));
  }
}

// What is shown. A series is a name and what it takes from an interval.

const rates = (...pairs) => pairs.map(([name, of]) => [name, (i) => i.rate(of)]);
const gauges = (...pairs) => pairs.map(([name, of]) => [name, (i) => i.gauge(of)]);
const GROUPS = [
  ["Traffic", [
    { title: "Commands", show: perSecond,
      series: rates(["all", "commands"], ["errors", "command_errors"],
        ["waited for the store", "commands_suspended"]) },
    { title: "Time of commands", show: time, series: [0.5, 0.99, 0.999].map((share) =>
      [`p${share * 100}`, (i) => percentile(i.allCommands, share)]) },
    { title: "Network", show: bytesPerSecond, binary: true,
      series: rates(["in", "input_bytes"], ["out", "output_bytes"]) },
  ]],
  ["Cache", [
    { title: "Hits", show: percent, most: 1, series: [
      ["reads from memory", (i) => i.cached()], ["keys found", (i) => i.found()]] },
    { title: "Pages read", show: perSecond,
      series: rates(["leaves", "page_reads_leaf"], ["inner", "page_reads_inner"],
        ["long values", "page_reads_overflow"]) },
    { title: "Frames emptied", show: perSecond,
      series: rates(["clean", "evictions_clean"], ["dirty", "evictions_dirty"]) },
    { title: "Frames", show: count,
      series: gauges(["dirty", "dirty_frames"], ["pinned", "pin_frames"],
        ["wired", "wired_frames"]) },
  ]],
  ["Device", [
    { title: "Requests", show: perSecond, series: ["read", "write", "sync"].map((kind) =>
      [`${kind}s`, (i) => i.spreadRate(`device_${kind}_ns`)]) },
    { title: "Time, p99", show: time, series: ["read", "write", "sync"].map((kind) =>
      [kind, (i) => percentile(i.spread(`device_${kind}_ns`), 0.99)]) },
    { title: "Bytes", show: bytesPerSecond, binary: true,
      series: rates(["read", "device_read_bytes"], ["written", "device_write_bytes"]) },
    { title: "Requests in flight", show: count, series: [0.5, 0.99].map((share) =>
      [`p${share * 100}`, (i) => percentile(i.spread("device_queue_depth"), share)]) },
  ]],
  ["Log, checkpoints and space", [
    { title: "Log appended", show: bytesPerSecond, binary: true,
      series: rates(["records", "log_bytes"]) },
    { title: "Time of a log flush", show: time, series: [0.5, 0.99].map((share) =>
      [`p${share * 100}`, (i) => percentile(i.spread("log_flush_ns"), share)]) },
    { title: "Log", show: bytes, binary: true,
      series: gauges(["since the checkpoint", "log_used_bytes"],
        ["not durable yet", "log_pending_bytes"]) },
    { title: "Pages written", show: perSecond,
      series: rates(["by checkpoints", "checkpoint_pages"], ["all", "page_writes"]) },
    { title: "Data file", show: bytes, binary: true, series: [
      ["in use", (i) => (i.gauge("data_bytes") ?? 0) - (i.gauge("data_free_bytes") ?? 0)],
      ["free", (i) => i.gauge("data_free_bytes")]] },
  ]],
];
const TILES = [
  ["commands", (i) => perSecond(i.rate("commands"))],
  ["time of commands, p99", (i) => time(percentile(i.allCommands, 0.99))],
  ["reads from memory", (i) => percent(i.cached())],
  ["device reads, p99", (i) => time(percentile(i.spread("device_read_ns"), 0.99))],
  ["clients", (i) => count(i.gauge("connected_clients"))],
  ["keys", (i) => count(i.gauge("keys"))],
  ["resident memory", (i) => bytes(i.now.memory.resident_bytes)],
  ["last checkpoint", (i) => (i.now.last_checkpoint_unix_ms === null ? UNKNOWN
    : age(Math.max(0, (i.now.now_unix_ms - i.now.last_checkpoint_unix_ms) / 1000)) + " ago")],
];

/** Moments with the values of all series, oldest first; `values[chart][series]`. */
const moments = [];
const charts = [];
let spanMs = 5 * 60 * 1000;
let paused = false;

class Chart {
  constructor(definition) {
    Object.assign(this, definition);
    this.root = element("div", { class: "card chart" });
    this.root.append(element("h3", {}, this.title));
    const legend = element("ul", { class: "legend" });
    this.current = this.series.map(([name], index) => {
      const value = element("b", {}, UNKNOWN);
      const item = element("li");
      const mark = element("i", { class: `s${index}`, "aria-hidden": "true" });
      item.append(mark, name + " ", value);
      legend.append(item);
      return value;
    });
    this.svg = drawn("svg", { role: "img", tabindex: "0", "aria-label": this.title });
    this.root.append(legend, this.svg);
    this.chosen = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.choose(null));
    this.svg.addEventListener("blur", () => this.choose(null));
    this.svg.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  values(interval) {
    return this.series.map(([, take]) => {
      const value = take(interval);
      return value === undefined ? null : value;
    });
  }

  /** The largest number of the axis, and the distance of its lines. */
  scale(shown) {
    if (this.most) return [this.most, this.most / 4];
    let largest = 0;
    for (const moment of shown) {
      for (const value of moment.values[this.index]) largest = Math.max(largest, value ?? 0);
    }
    if (largest <= 0) return [1, 1];
    const power1024 = Math.floor(Math.log(Math.max(largest, 1)) / Math.log(1024));
    const unit = this.binary ? 1024 ** power1024 : 1;
    const raw = largest / unit / 3;
    const power = 10 ** Math.floor(Math.log10(raw));
    const nice = [1, 2, 2.5, 5, 10].find((step) => step * power >= raw * 0.999) ?? 10;
    const step = nice * power * unit;
    return [Math.ceil((largest * 0.999) / step) * step, step];
  }

  draw() {
    const width = this.svg.clientWidth;
    if (width === 0) return;
    const end = moments.length > 0 ? moments[moments.length - 1].at : Date.now();
    const shown = moments.filter((moment) => moment.at >= end - spanMs);
    const [most, step] = this.scale(shown);
    const right = width - MARGIN.right;
    const x = (at) => MARGIN.left + (1 - (end - at) / spanMs) * (right - MARGIN.left);
    const y = (value) => HEIGHT - MARGIN.bottom
      - (Math.min(value, most) / most) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const parts = [];
    for (let value = 0; value <= most * 1.001; value += step) {
      const level = y(value).toFixed(1);
      const ends = { x1: MARGIN.left, x2: right, y1: level, y2: level };
      parts.push(drawn("line", { class: "grid", ...ends }));
      const label = this.show(value).replace("/s", "");
      const place = { x: MARGIN.left - 6, y: Number(level) + 4, "text-anchor": "end" };
      parts.push(drawn("text", place, label));
    }
    parts.push(drawn("text", { x: MARGIN.left, y: HEIGHT - 3 }, `${spanMs / 60000} min ago`));
    const corner = { x: right, y: HEIGHT - 3, "text-anchor": "end" };
    parts.push(drawn("text", corner, paused ? "paused" : "now"));
    this.series.forEach((_, index) => {
      let path = "", pen = "M", last = 0;
      for (const moment of shown) {
        const value = moment.values[this.index][index];
        if (value === null || !Number.isFinite(value)) {
          pen = "M";
          continue;
        }
        // Nothing is known of a time in which nobody answered.
        if (moment.at - last > 4 * POLL_MS) pen = "M";
        const place = `${x(moment.at).toFixed(1)} ${y(value).toFixed(1)}`;
        path += pen === "M" ? `M${place}L${place}` : `L${place}`;
        [pen, last] = ["L", moment.at];
      }
      parts.push(drawn("path", { class: `s${index}`, d: path || "M0 0" }));
    });
    if (this.chosen !== null && shown.length > 0) {
      const moment = shown[Math.min(this.chosen, shown.length - 1)];
      const place = x(moment.at).toFixed(1);
      const ends = { x1: place, x2: place, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom };
      parts.push(drawn("line", { class: "cross", ...ends }));
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    this.shown = shown;
    this.x = x;
    this.tell();
  }

  /** The newest values, beside the names and for who cannot see the curves. */
  tell() {
    const newest = moments[moments.length - 1];
    const texts = this.series.map(([name], index) => {
      const text = this.show(newest ? newest.values[this.index][index] : null);
      this.current[index].textContent = text;
      return `${name} ${text}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}: ${texts.join(", ")}`);
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const place = event.clientX - box.left;
    let nearest = null;
    (this.shown ?? []).forEach((moment, index) => {
      const distance = Math.abs(this.x(moment.at) - place);
      if (nearest === null || distance < nearest[0]) nearest = [distance, index];
    });
    this.choose(nearest === null ? null : nearest[1]);
  }

  step(event) {
    const last = (this.shown ?? []).length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last };
    if (event.key === "Escape") this.choose(null);
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    const from = this.chosen ?? last;
    this.choose(Math.min(last, Math.max(0, from + moves[event.key])));
  }

  choose(index) {
    this.chosen = index;
    this.draw();
    const tip = byId("tip");
    const moment = index === null ? null : this.shown?.[index];
    tip.hidden = !moment;
    if (!moment) return;
    const lines = [element("div", {}, new Date(moment.at).toLocaleTimeString())];
    this.series.forEach(([name], at) => {
      const line = element("div");
      line.append(element("b", {}, this.show(moment.values[this.index][at])), " " + name);
      lines.push(line);
    });
    tip.replaceChildren(...lines);
    const box = this.svg.getBoundingClientRect();
    const place = box.left + this.x(moment.at);
    const left = place + 12 + tip.offsetWidth > document.documentElement.clientWidth
      ? place - 12 - tip.offsetWidth : place + 12;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, box.top + MARGIN.top)}px`;
  }
}

function build() {
  for (const [name, definitions] of GROUPS) {
    const section = element("section", { "aria-label": name });
    const grid = element("div", { class: "charts" });
    for (const definition of definitions) {
      const chart = new Chart({ ...definition, index: charts.length });
      charts.push(chart);
      grid.append(chart.root);
    }
    section.append(element("h2", {}, name), grid);
    byId("groups").append(section);
  }
  for (const [name, take] of TILES) {
    const tile = element("div");
    const value = element("dd", {}, UNKNOWN);
    tile.append(element("dt", {}, name), value);
    byId("tiles").append(tile);
    take.place = value;
  }
}

function row(name, cells) {
  const made = element("tr");
  made.append(element("th", { scope: "row" }, name));
  for (const cell of cells) {
    const place = element("td");
    place.append(cell);
    made.append(place);
  }
  return made;
}

function bar(name, used, whole) {
  const share = whole > 0 ? used / whole : 0;
  const box = element("div", {
    class: share > 1 ? "bar over" : "bar", role: "meter", "aria-label": name,
    "aria-valuemin": 0, "aria-valuemax": 100,
    "aria-valuenow": Math.min(100, Math.round(100 * share)),
  });
  const inner = element("div");
  inner.style.width = `${Math.min(100, 100 * share).toFixed(1)}%`;
  box.append(inner);
  return box;
}

function showMemory(memory) {
  const rows = memory.parts.map((part) => {
    const name = part.name.replaceAll("_", " ");
    const budget = part.budget_bytes;
    return row(name, [bytes(part.used_bytes), budget === null ? "of the rest" : bytes(budget),
      budget === null ? "" : bar(name, part.used_bytes, budget)]);
  });
  rows.push(row("left for the rest", ["", bytes(memory.rest_budget_bytes), ""]));
  for (const [name, used] of [["in use", memory.used_bytes], ["resident", memory.resident_bytes]]) {
    rows.push(row(name, [bytes(used), bytes(memory.max_bytes), bar(name, used, memory.max_bytes)]));
  }
  byId("memory").tBodies[0].replaceChildren(...rows);
}

/** Rows of commands by name, as they were when the command was last called. */
const commandRows = new Map();

function showCommands(interval) {
  for (const cells of commandRows.values()) Object.assign(cells, { rate: 0, failures: 0 });
  for (const { name, spread, failures } of interval.commands) {
    commandRows.set(name, { rate: spread.count / interval.seconds, spread, failures });
  }
  const sorted = [...commandRows].sort((a, b) => b[1].rate - a[1].rate || a[0].localeCompare(b[0]));
  const rows = sorted.map(([name, { rate, spread, failures }]) => row(name, [
    count(rate), time(spread.sum / spread.count), ...[0.5, 0.99, 0.999].map((share) =>
      time(percentile(spread, share))), count(failures)]));
  byId("commands").tBodies[0].replaceChildren(...rows);
}

function showState(state, text) {
  const place = byId("state");
  place.dataset.state = state;
  if (place.textContent !== text) place.textContent = text;
}

function showAbout(now) {
  byId("version").textContent = now.version;
  const parts = [`up ${age(now.uptime_seconds)}`, `durability ${now.durability}`];
  if (now.io_backend !== null) parts.push(`I/O ${now.io_backend}`);
  byId("about").textContent = parts.join(", ");
  if (now.poisoned !== null) showState("bad", "writes are refused");
  else if (now.stage === "serving") showState("good", "serving");
  else showState("wait", now.stage);
  const trouble = byId("trouble");
  trouble.hidden = now.poisoned === null;
  if (now.poisoned !== null) trouble.textContent = `Writes are refused: ${now.poisoned}`;
  document.body.classList.remove("stale");
}

let previous = null;
let heardAt = null;

function take(now) {
  now.at = Date.now();
  heardAt = now.at;
  const interval = new Interval(now, previous);
  if (interval.before === null) commandRows.clear();
  previous = now;
  moments.push({ at: now.at, values: charts.map((chart) => chart.values(interval)) });
  while (moments[0].at < now.at - KEPT_MS) moments.shift();
  if (paused) return;
  showAbout(now);
  for (const [, show] of TILES) show.place.textContent = show(interval);
  charts.forEach((chart) => chart.draw());
  showMemory(now.memory);
  showCommands(interval);
}

function lost(error) {
  const trouble = byId("trouble");
  const since = heardAt === null ? "" : ` since ${new Date(heardAt).toLocaleTimeString()}`;
  trouble.hidden = false;
  trouble.textContent = `No answer${since} (${error.message}); trying again.`;
  showState("bad", "no answer");
  document.body.classList.add("stale");
}

async function poll() {
  const begun = Date.now();
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const reply = await fetch("stats.json", { cache: "no-store", signal });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    take(await reply.json());
  } catch (error) {
    lost(error);
  }
  setTimeout(poll, Math.max(200, POLL_MS - (Date.now() - begun)));
}

// Storage may be forbidden: then a choice lasts as long as the page.
const remembered = {
  get: (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set: (name, value) => {
    try {
      localStorage.setItem(name, value);
    } catch {
      // As said above.
    }
  },
};

function setUp() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const system = dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = remembered.get("theme") ?? system;
  };
  show();
  dark.addEventListener("change", show);
  byId("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remembered.set("theme", next);
    document.documentElement.dataset.theme = next;
  });
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    byId("pause").textContent = paused ? "Go on" : "Pause";
    charts.forEach((chart) => chart.draw());
  });
  byId("span").addEventListener("change", (event) => {
    spanMs = Number(event.target.value) * 60 * 1000;
    charts.forEach((chart) => chart.draw());
  });
  build();
  poll();
}

setUp();
