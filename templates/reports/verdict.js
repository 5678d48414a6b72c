"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const places = new Map();
  const { unit = "s", per = 1, most = 1 } = data;

  const number = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits });
  const duration = (ns) => ns >= 1e9 ? `${number(ns / 1e9, 2)} s` : ns >= 1e6 ? `${number(ns / 1e6, 2)} ms` : `${number(ns / 1e3, 0)} µs`;
  const units = {
    rate: (value) => `${number(value, 1)}/s`,
    ns: duration,
    messages: (value) => number(value, 0),
    share: (value) => `${number(value * 100, 2)} %`,
    answer: (value) => value < 0 ? "no answer" : duration(value),
  };

  function row(name, value) {
    const line = document.createElement("div");
    for (const text of [name, value]) {
      const cell = document.createElement("span");
      cell.textContent = text;
      line.append(cell);
    }
    return line;
  }

  function put(x, top, bottom) {
    tip.hidden = false;
    const left = x + 12 + tip.offsetWidth > innerWidth ? x - 12 - tip.offsetWidth : x + 12;
    const above = top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${above > 4 ? above : bottom + 6}px`;
  }

  function show(figure, place) {
    const chart = data.charts[Number(figure.dataset.chart)];
    const at = Math.min(Math.max(place, 0), data.intervals - 1);
    places.set(figure, at);
    const from = data.start + at * data.interval;
    const plot = figure.querySelector(".plot");
    const cursor = figure.querySelector(".cursor");
    for (const other of document.querySelectorAll(".cursor")) other.hidden = other !== cursor;
    cursor.style.left = `${100 * (at + 0.5) / data.intervals}%`;
    tip.replaceChildren(row(chart.title, `${number(from / per, most)} to ${number((from + data.interval) / per, most)} ${unit}`));
    for (const series of chart.series) {
      const value = series.values[at];
      tip.append(row(series.name, value === null ? "–" : units[chart.unit](value)));
    }
    const box = plot.getBoundingClientRect();
    put(box.left + box.width * (at + 0.5) / data.intervals, box.top, box.bottom);
  }

  function hide() {
    tip.hidden = true;
    for (const cursor of document.querySelectorAll(".cursor")) cursor.hidden = true;
  }

  for (const figure of document.querySelectorAll("figure.chart")) {
    const plot = figure.querySelector(".plot");
    const point = (event) => {
      const box = plot.getBoundingClientRect();
      show(figure, Math.floor(data.intervals * (event.clientX - box.left) / box.width));
    };
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      show(figure, (places.get(figure) ?? -step) + step);
    });
  }
  for (const bar of document.querySelectorAll(".bar")) {
    // A narrow bar has no room for its name, and a finger no pointer to wait with.
    const tell = () => {
      hide();
      tip.replaceChildren(bar.title);
      const box = bar.getBoundingClientRect();
      put(box.left, box.top, box.bottom);
    };
    bar.addEventListener("focus", tell);
    bar.addEventListener("pointerdown", tell);
    bar.addEventListener("blur", hide);
  }
  addEventListener("scroll", hide, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
