"use strict";
// Cost of each round: stacked bars in an SVG, with zoom by drag, keys and buttons, and a line of
// text that says what is under the pointer or the cursor.

(() => {
  const { points, series, step, last: lastRound } = JSON.parse(document.getElementById("data").textContent);
  const box = document.getElementById("chart");
  const count = points.index.length;
  if (!box || !count) return;
  const svg = box.querySelector("svg"), said = document.getElementById("chart-said");
  const LEFT = 46, RIGHT = 6, TOP = 34, BOTTOM = 26, HEIGHT = 260, MOST = 400;
  const most = Math.max(1, ...points.n_ok.filter((n) => n !== null));
  const known = points.n_ok.some((n) => n !== null);
  let first = 0, last = count, at = null, dragFrom = null;

  const node = (name, attributes, parent = svg) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };
  // last round that a point stands for
  const until = (i) => (i + 1 < points.index.length ? points.index[i + 1] - 1 : lastRound);
  const ms = (ns) => (ns / 1e6).toFixed(3);
  const width = () => Math.max(300, Math.round(box.clientWidth));
  const xOf = (i) => LEFT + ((i - first) / (last - first)) * (width() - LEFT - RIGHT);
  const mean = (column, from, to) => {
    let total = 0;
    for (let i = from; i < to; i++) total += column[i];
    return total / (to - from);
  };

  function niceStep(highest) {
    const rough = highest / 4, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  }

  // End of the scale: a few far outliers are cut, so that the others can be read.
  function ceiling(tops) {
    const sorted = [...tops].sort((a, b) => a - b), highest = sorted.at(-1);
    const place = 0.95 * (sorted.length - 1), low = Math.floor(place);
    const usual = sorted[low] + (place - low) * ((sorted[low + 1] ?? highest) - sorted[low]);
    return usual > 0 && highest > 3 * usual ? 1.5 * usual : highest * 1.04;
  }

  function draw() {
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width()} ${HEIGHT}`);
    const join = Math.ceil((last - first) / MOST), bars = [];
    for (let from = first; from < last; from += join) {
      const to = Math.min(from + join, last);
      bars.push({ from, to, parts: series.map((name) => mean(points[name], from, to)) });
    }
    const tops = bars.map((b) => Math.max(b.parts.reduce((x, y) => x + y, 0), 1) / 1e6);
    const end = ceiling(tops);
    const yOf = (v) => HEIGHT - BOTTOM - (Math.min(v, end) / end) * (HEIGHT - TOP - BOTTOM);
    const grid = niceStep(end), digits = Math.max(0, -Math.floor(Math.log10(grid)));
    for (let v = 0; v <= end; v += grid) {
      node("line", { x1: LEFT, x2: width() - RIGHT, y1: yOf(v), y2: yOf(v), class: "grid" });
      node("text", { x: LEFT - 6, y: yOf(v) + 4, class: "tick end" }).textContent = v.toFixed(digits);
    }
    node("text", { x: LEFT - 6, y: TOP - 4, class: "tick end" }).textContent = "ms";
    for (const { from, to, parts } of bars) {
      let base = 0;
      parts.forEach((ns, s) => {
        const top = base + ns / 1e6, x = xOf(from);
        if (ns > 0) {
          node("rect", { x, y: yOf(top), width: Math.max(xOf(to) - x - (join > 1 ? 0 : 0.5), 0.5),
            height: Math.max(yOf(base) - yOf(top), 0), class: `fill ${series[s]}` });
        }
        base = top;
      });
    }
    let free = LEFT;
    bars.forEach(({ from }, i) => {
      const text = `${tops[i].toFixed(1)} ↑`, size = text.length * 7;
      const x = Math.min(xOf(from), width() - RIGHT - size);
      if (tops[i] <= end || x < free) return;
      node("text", { x: x + 2, y: TOP + 10, class: "cut" }).textContent = text;
      free = x + size;
    });
    if (known) {
      node("text", { x: LEFT - 6, y: 14, class: "tick end" }).textContent = "n_ok";
      for (let i = first; i < last; i += join) {
        if (points.n_ok[i] === null) continue;
        node("circle", { cx: (xOf(i) + xOf(Math.min(i + 1, last))) / 2,
          cy: 22 - (points.n_ok[i] / most) * 16, r: last - first > 150 ? 1.2 : 2.5, class: "dot" });
      }
    }
    const labels = Math.max(1, Math.ceil((last - first) / Math.max(2, Math.floor(width() / 80))));
    for (let i = first; i < last; i += labels) {
      node("text", { x: (xOf(i) + xOf(Math.min(i + 1, last))) / 2, y: HEIGHT - 8, class: "tick mid" })
        .textContent = points.index[i];
    }
    cursor();
  }

  function cursor() {
    svg.querySelector(".cursor")?.remove();
    if (at === null || at < first || at >= last) return;
    node("rect", { x: xOf(at), y: TOP, width: Math.max(xOf(at + 1) - xOf(at), 1),
      height: HEIGHT - TOP - BOTTOM, class: "cursor" });
  }

  function say(i) {
    at = Math.min(Math.max(i, 0), count - 1);
    const name = step > 1 ? `rounds ${points.index[at]} to ${until(at)} (mean)`
      : `round ${points.index[at]}`;
    const parts = series.map((s) => `${s} ${ms(points[s][at])}`).join(", ");
    const n = points.n_ok[at] === null ? "n_ok not known" : `n_ok ${points.n_ok[at]}`;
    const flags = points.flags[at] ? `; ${points.flags[at]}` : "";
    said.value = `${name}: wall ${ms(points.wall[at])} ms; ${parts}; ${n}${flags}`;
    cursor();
  }

  function zoom(from, to) {
    const size = Math.min(Math.max(Math.round(to - from), Math.min(4, count)), count);
    first = Math.min(Math.max(Math.round(from), 0), count - size);
    last = first + size;
    document.getElementById("chart-range").value =
      `rounds ${points.index[first]} to ${until(last - 1)}`;
    draw();
  }

  const scale = (factor) => {
    const middle = at !== null && at >= first && at < last ? at : (first + last) / 2;
    const half = ((last - first) * factor) / 2;
    zoom(middle - half, middle + half);
  };
  const shift = (share) => zoom(first + share * (last - first), last + share * (last - first));
  const actions = {
    in: () => scale(0.5), out: () => scale(2), all: () => zoom(0, count),
    left: () => shift(-0.5), right: () => shift(0.5),
  };
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => actions[button.dataset.zoom]());
  }
  const under = (event) => {
    const x = event.clientX - svg.getBoundingClientRect().left - LEFT;
    return Math.floor(first + (x / (width() - LEFT - RIGHT)) * (last - first));
  };
  svg.addEventListener("pointermove", (event) => {
    const i = under(event);
    if (i >= first && i < last) say(i);
  });
  svg.addEventListener("pointerdown", (event) => { dragFrom = under(event); });
  addEventListener("pointerup", (event) => {
    if (dragFrom === null) return;
    const to = under(event), from = dragFrom;
    dragFrom = null;
    if (Math.abs(to - from) >= 2) zoom(Math.min(from, to), Math.max(from, to) + 1);
  });
  svg.addEventListener("dblclick", actions.all);
  svg.addEventListener("keydown", (event) => {
    const here = at ?? first - 1;
    const keys = {
      ArrowRight: () => say(here + 1), ArrowLeft: () => say(here - 1),
      Home: () => say(0), End: () => say(count - 1),
      "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.all,
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
    if (at !== null && (at < first || at >= last)) zoom(at - (last - first) / 2, at + (last - first) / 2);
  });
  addEventListener("resize", draw);
  zoom(0, count);
})();
