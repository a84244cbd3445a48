"use strict";
// What other acceptance or other costs would make of a run: the arithmetic of `nsysacct whatif`
// in floating point. Pure functions of (costs, levers); nothing here touches the page.

const WhatIf = (() => {
  const HAND_UNIT_NS = 100000, HAND_ERROR = 0.01;
  const TREATMENTS = ["per round", "fixed", "dropped"];
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const expect = (histogram, rule) => sum(histogram.map((p, n) => p * rule[n]));
  const counting = (histogram) => histogram.map((_, n) => n);

  function alphaForMean(mean, k) {
    if (mean >= k) return 1;
    if (mean <= 0) return 0;
    let low = 0, high = 1;
    for (let i = 0; i < 200; i++) {
      const middle = (low + high) / 2;
      let total = 0;
      for (let j = 1; j <= k; j++) total += middle ** j;
      if (total < mean) low = middle; else high = middle;
    }
    return (low + high) / 2;
  }

  function constantRate(alpha, k) {
    const reach = [];
    for (let j = 0; j <= k; j++) reach.push(alpha ** j);
    reach.push(0);
    return reach.slice(0, -1).map((r, j) => r - reach[j + 1]);
  }

  function atOtherK(histogram, k) {
    if (k < histogram.length) return [...histogram.slice(0, k), sum(histogram.slice(k))];
    const old = histogram.length - 1;
    const mean = expect(histogram, counting(histogram));
    const tail = constantRate(alphaForMean(mean, old), k - old);
    return [...histogram.slice(0, old), ...tail.map((p) => histogram[old] * p)];
  }

  function model(costs) {
    const m = {
      costs,
      draft: costs.draft_ns / costs.rounds,
      verify: costs.verify_ns / costs.rounds,
      replay: costs.replay_ns / costs.rounds,
      base: null,
      fill: 1,
    };
    if (costs.histogram) {
      const total = sum(costs.histogram);
      m.base = costs.histogram.map((c) => c / total);
      m.fill = costs.emitted / (costs.rounds * costs.batch) / expect(m.base, costs.tokens_of[costs.k]);
    }
    const steps = m.base ? expect(m.base, costs.steps_of[costs.k]) : 0;
    m.step = steps ? m.replay / steps : costs.checkpoint ? m.verify : costs.plain_ns || 0;
    return m;
  }

  function shape(m, histogram) {
    const c = m.costs;
    const rounds = c.emitted / (m.fill * c.batch * expect(histogram, c.tokens_of[histogram.length - 1]));
    return { rounds, replay: expect(histogram, c.steps_of[histogram.length - 1]) * m.step };
  }

  function calibrated(m, mean) {
    const c = m.costs, before = c.accepted / (c.rounds * c.batch);
    return { rounds: (c.rounds * (before + 1)) / (mean + 1), replay: m.replay };
  }

  function shapes(m, levers) {
    const c = m.costs, k = levers.k ?? c.k;
    if (levers.acceptance !== undefined) {
      const found = [shape(m, constantRate(alphaForMean(levers.acceptance, c.k), k))];
      if (levers.k === undefined && c.accepted !== null) {
        found.push(calibrated(m, levers.acceptance));
      }
      return found;
    }
    if (k === c.k) return [{ rounds: c.rounds, replay: m.replay }];
    const mean = c.accepted === null ? null : c.accepted / c.rounds / c.batch;
    const base = m.base ?? constantRate(alphaForMean(mean, c.k), c.k);
    return [shape(m, atOtherK(base, k))];
  }

  function total(m, rounds, parts, treatment) {
    const rest = m.costs.rest_ns;
    if (treatment === "fixed") return rounds * parts + rest;
    if (treatment === "per round") return rounds * parts + (rest * rounds) / m.costs.rounds;
    return rounds * parts;
  }

  function halfEven(x) {
    const down = Math.floor(x), part = x - down;
    if (part !== 0.5) return Math.round(x);
    return down % 2 === 0 ? down : down + 1;
  }

  // Whole A+1-calibrated rounds times parts written to 0.1 ms, rest dropped: as on paper.
  function byHand(m, mean, parts) {
    if (m.costs.accepted === null) return [];
    const written = sum(parts.map((p) => halfEven(p / HAND_UNIT_NS))) * HAND_UNIT_NS;
    const exact = sum(parts), rounds = halfEven(calibrated(m, mean).rounds);
    if (!exact || !rounds || Math.abs(written - exact) > HAND_ERROR * exact) return [];
    return [rounds * written];
  }

  function fixedParts(m, levers) {
    const c = m.costs, k = levers.k ?? c.k, given = (ms) => ms * c.ns_per_ms;
    let draft = m.draft, verify = m.verify;
    if (k !== c.k) {
      const slope = given(levers.verify_slope_ms ?? 0);
      draft = (m.draft * k) / c.k;
      verify = Math.max(m.verify + (c.width_of[k] - c.width) * slope, 0);
    }
    if (levers.verify_ms !== undefined) verify = given(levers.verify_ms);
    if (levers.draft_ms !== undefined) draft = given(levers.draft_ms);
    return { draft, verify, replay: levers.replay_ms === undefined ? null : given(levers.replay_ms) };
  }

  function* twoPoint(mean, k) {
    for (let low = 0; low <= k; low++) {
      for (let high = 0; high <= k; high++) {
        if (!((low <= mean && mean < high) || (low === high && low === mean))) continue;
        const weights = new Array(k + 1).fill(0);
        const upper = low === high ? 0 : (mean - low) / (high - low);
        weights[high] += upper;
        weights[low] += 1 - upper;
        yield weights;
      }
    }
  }

  // Range over the corners for all levers together:
  // {low, high: speed-up or null; low_ms, high_ms: ms a token; any_low, any_high}.
  function answer(costs, levers) {
    const m = model(costs);
    const given = Object.keys(levers).some((name) => name !== "verify_slope_ms");
    const { draft, verify, replay } = fixedParts(m, levers);
    const treatments = !given ? ["per round"] : levers.no_residual ? ["dropped"] : TREATMENTS;
    const totals = [];
    for (const s of shapes(m, levers)) {
      for (const t of treatments) {
        totals.push(total(m, s.rounds, draft + verify + (replay ?? s.replay), t));
      }
    }
    const meanAlone = levers.acceptance !== undefined && levers.k === undefined;
    if (meanAlone) totals.push(...byHand(m, levers.acceptance, [draft, verify, replay ?? m.replay]));
    const speedup = (ns) => (costs.plain_ns * costs.tokens) / costs.batch / ns;
    const range = (values) =>
      values.length ? [Math.min(...values), Math.max(...values)] : [null, null];
    const positive = (values) => (costs.plain_ns ? values.filter((t) => t > 0).map(speedup) : []);
    const [low, high] = range(positive(totals));
    const [low_ms, high_ms] = range(
      totals.map((t) => (t * costs.batch) / costs.tokens / costs.ns_per_ms));
    const any = [];
    if (meanAlone && costs.plain_ns) {
      for (const h of twoPoint(levers.acceptance, costs.k)) {
        const s = shape(m, h);
        for (const t of treatments) {
          any.push(total(m, s.rounds, draft + verify + (replay ?? s.replay), t));
        }
      }
    }
    const [any_low, any_high] = range(positive(any));
    return { low, high, low_ms, high_ms, any_low, any_high };
  }

  // As the command line prints a range: one figure when its ends print alike.
  function span(low, high, digits, unit = "") {
    if (low === null) return "-";
    const first = low.toFixed(digits), last = high.toFixed(digits);
    return (first === last ? first : `${first}-${last}`) + unit;
  }

  return { answer, span };
})();
