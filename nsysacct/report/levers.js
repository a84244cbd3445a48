"use strict";
// The what-if form: a slider that was moved is a lever; one at its mark is left as measured.

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("levers");
  if (!form || !data.costs) return;
  form.hidden = false;
  const sliders = [...form.querySelectorAll("input[type=range]")];
  const plain = form.querySelector("#lever-plain");
  const residual = form.querySelector("#lever-no_residual");
  const shown = (slider) => Number(slider.value).toFixed(Number(slider.dataset.digits));
  const moved = (slider) => slider.dataset.moved === "yes";

  function levers() {
    const found = {};
    for (const slider of sliders) {
      if (moved(slider)) found[slider.name] = Number(shown(slider));
    }
    if (residual.checked) found.no_residual = true;
    return found;
  }

  function command(found, plainMs) {
    const quoted = /^[\w./-]+$/.test(data.file)
      ? data.file : `'${data.file.replaceAll("'", "'\\''")}'`;
    const words = ["nsysacct whatif", quoted];
    for (const [name, value] of Object.entries(found)) {
      words.push(`--${name.replaceAll("_", "-")}` + (value === true ? "" : ` ${value}`));
    }
    if (plainMs) words.push(`--plain-ms ${plainMs}`);
    return words.join(" ");
  }

  function update() {
    for (const slider of sliders) {
      const text = moved(slider) ? shown(slider) : `${slider.dataset.measured} (as measured)`;
      slider.nextElementSibling.value = text;
      slider.setAttribute("aria-valuetext", `${text} ${slider.dataset.unit}`);
    }
    const changed = plain.value !== plain.defaultValue;
    const costs = { ...data.costs };
    if (changed) costs.plain_ns = Number(plain.value) > 0 ? Number(plain.value) * 1e6 : null;
    const found = levers(), answer = WhatIf.answer(costs, found);
    const put = (id, text) => { document.getElementById(id).textContent = text; };
    put("speedup", WhatIf.span(answer.low, answer.high, 2, "x"));
    put("per-token", WhatIf.span(answer.low_ms, answer.high_ms, 2));
    put("any-histogram", WhatIf.span(answer.any_low, answer.any_high, 2, "x"));
    const verdict = answer.low === null ? "no plain step to hold it against"
      : answer.low > 1 ? "pays" : costs.plain_is_least && !changed ? "open: a plain step may take longer"
      : answer.high < 1 ? "does not pay" : "could go either way";
    put("pays", verdict);
    put("command", command(found, changed || costs.plain_given ? plain.value : ""));
  }

  for (const slider of sliders) {
    slider.addEventListener("input", () => { slider.dataset.moved = "yes"; update(); });
  }
  plain.addEventListener("input", update);
  residual.addEventListener("change", update);
  form.addEventListener("reset", () => {
    for (const slider of sliders) slider.dataset.moved = "no";
    setTimeout(update);  // after the browser has put the values back
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
