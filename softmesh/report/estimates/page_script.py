"""The script of the page of an estimate: sorting, searching, light and dark, and the timeline one can move about in."""

from __future__ import annotations

SCRIPT = r"""
'use strict';
(function () {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent);

  // -- light and dark ---------------------------------------------------------------------------------------------
  const root = document.documentElement;
  const isDark = () => root.dataset.theme === 'dark' ||
    (!root.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  byId('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; draw(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw());

  // -- tables -----------------------------------------------------------------------------------------------------
  for (const table of document.querySelectorAll('table')) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => {
      const numeric = head.classList.contains('number');
      const before = head.getAttribute('aria-sort');
      const falls = before ? before === 'ascending' : numeric;
      const order = falls ? 'descending' : 'ascending';
      heads.forEach((each) => each.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const sign = order === 'ascending' ? 1 : -1;
      const value = (row) => row.cells[column].dataset.v;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => sign * (isNumber(value(a)) && isNumber(value(b))
        ? parseFloat(value(a)) - parseFloat(value(b)) : value(a).localeCompare(value(b), undefined, {numeric: true})));
      table.tBodies[0].append(...rows);
    }));
  }
  function isNumber(text) { return text !== '' && !isNaN(text); }

  let wanted = '';
  byId('search').addEventListener('input', (event) => {
    wanted = event.target.value.trim().toLowerCase();
    let shown = 0;
    for (const row of document.querySelectorAll('tbody tr')) {
      const fits = !wanted || row.textContent.toLowerCase().includes(wanted);
      row.classList.toggle('none', !fits);
      shown += fits;
    }
    byId('found').textContent = wanted ? shown + ' rows' : '';
    draw();
  });

  // -- the timeline -----------------------------------------------------------------------------------------------
  const canvas = byId('timeline');
  if (!canvas) return;  // nothing ran
  const context = canvas.getContext('2d');
  const LANE = 26, GAP = 8, LABEL = 17, MARKS = 24, TOP = data.marks.length ? 42 : 24;
  const whole = [0, data.end];
  let view = [...whole];
  const byLane = data.lanes.map(() => []);
  for (const command of data.commands) byLane[command[0]].push(command);
  for (const lane of byLane) lane.sort((a, b) => a[1] - b[1]);
  const height = TOP + data.lanes.length * (LANE + LABEL + GAP) + 4;
  let boxes = [];

  function timeText(ns) {
    const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
    for (const [size, name] of units) if (Math.abs(ns) >= size) return +(ns / size).toPrecision(4) + ' ' + name;
    return '0';
  }
  function colour(name) { return getComputedStyle(root).getPropertyValue('--' + name).trim(); }

  function draw() {
    const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = height + 'px';
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const [faded, ground, line, warm] = ['faded', 'ground', 'line', 'warm'].map(colour);
    const colours = data.colours.map(colour);
    const x = (ns) => (ns - view[0]) / (view[1] - view[0]) * width;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    ticks(width, x, faded, line);
    boxes = [];
    byLane.forEach((lane, number) => {
      const top = TOP + number * (LANE + LABEL + GAP);
      context.fillStyle = faded;
      context.textAlign = 'left';
      context.fillText(data.lanes[number], 2, top + LABEL / 2);
      context.fillStyle = ground;
      context.fillRect(0, top + LABEL, width, LANE);
      drawLane(lane, top + LABEL, x, width, colours);
    });
    context.textAlign = 'left';
    for (const [text, at] of data.marks) {
      const place = x(at);
      if (place < -1 || place > width) continue;
      context.strokeStyle = warm;
      context.setLineDash([3, 3]);
      context.beginPath(); context.moveTo(place, MARKS + 6); context.lineTo(place, height); context.stroke();
      context.setLineDash([]);
      context.fillStyle = warm;
      context.textAlign = place > width - 90 ? 'right' : 'left';
      context.fillText(text, place + (place > width - 90 ? -4 : 4), MARKS + 6);
    }
    byId('span').textContent = timeText(view[0]) + ' – ' + timeText(view[1]);
  }

  function ticks(width, x, faded, line) {
    const span = view[1] - view[0], rough = span / Math.max(2, width / 110);
    const base = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= rough);
    context.textAlign = 'center';
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      context.strokeStyle = line;
      context.globalAlpha = .6;
      context.beginPath(); context.moveTo(x(at), 18); context.lineTo(x(at), height); context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = faded;
      const text = timeText(at), half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x(at), half), width - half), 9);
    }
  }

  function drawLane(lane, top, x, width, colours) {
    let last = -2, lastColour = '';
    for (const command of lane) {
      const [, start, length, name, bound, site, index] = command;
      if (start + length < view[0]) continue;
      if (start > view[1]) break;
      const left = Math.max(x(start), 0), right = Math.min(x(start + length), width);
      const size = Math.max(right - left, .8);
      if (left + size - last < .6 && lastColour === colours[bound]) continue;
      const fits = !wanted || (data.names[name] + ' ' + data.sites[site]).toLowerCase().includes(wanted);
      context.globalAlpha = fits ? 1 : .16;
      context.fillStyle = colours[bound];
      context.fillRect(left, top, size > 3 ? size - 1 : size, LANE);
      if (size > 34 && fits) {
        const isDeep = !isDark() && ['compute', 'link'].includes(data.colours[bound]);
        context.fillStyle = isDeep ? '#fff' : '#0b1016';
        context.textAlign = 'left';
        const text = data.names[name];
        const room = Math.floor((size - 8) / 6.2);
        const shown = text.length > room ? text.slice(0, room - 1) + '…' : text;
        if (room >= 3) context.fillText(shown, left + 4, top + LANE / 2 + .5);
      }
      context.globalAlpha = 1;
      last = left + size; lastColour = colours[bound];
      boxes.push([left, top, Math.max(size, 3), command]);
    }
  }

  function zoom(factor, at) {
    const span = Math.min(data.end, Math.max((view[1] - view[0]) * factor, 20));
    const share = (at - view[0]) / (view[1] - view[0]);
    move(at - span * share, span);
  }
  function move(start, span) {
    const first = Math.min(Math.max(0, start), data.end - span);
    view = [Math.max(first, 0), Math.max(first, 0) + span];
    draw();
  }
  function timeAt(event) {
    const share = (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth;
    return view[0] + share * (view[1] - view[0]);
  }
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.shiftKey && !event.altKey) return;
    event.preventDefault();
    zoom(Math.exp((event.deltaY || event.deltaX) / 400), timeAt(event));
  }, {passive: false});
  let held = null;
  canvas.addEventListener('pointerdown', (event) => {
    held = [event.clientX, view[0]];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointerup', () => { held = null; });
  canvas.addEventListener('pointermove', (event) => {
    if (held) {
      const span = view[1] - view[0];
      move(held[1] - (event.clientX - held[0]) / canvas.clientWidth * span, span);
      return tip(null);
    }
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    const hit = boxes.find((each) => px >= each[0] && px <= each[0] + each[2] && py >= each[1] && py <= each[1] + LANE);
    tip(hit && hit[3], event);
  });
  canvas.addEventListener('pointerleave', () => tip(null));
  canvas.addEventListener('dblclick', (event) => zoom(.4, timeAt(event)));
  canvas.addEventListener('keydown', (event) => {
    const span = view[1] - view[0], middle = view[0] + span / 2;
    const keys = {'+': () => zoom(.6, middle), '-': () => zoom(1.6, middle),
                  ArrowLeft: () => move(view[0] - span / 5, span),
                  ArrowRight: () => move(view[0] + span / 5, span), '0': () => { view = [...whole]; draw(); }};
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  byId('closer').addEventListener('click', () => zoom(.5, view[0] + (view[1] - view[0]) / 2));
  byId('farther').addEventListener('click', () => zoom(2, view[0] + (view[1] - view[0]) / 2));
  byId('all').addEventListener('click', () => { view = [...whole]; draw(); });

  function tip(command, event) {
    const box = byId('tip');
    if (!command) { box.style.display = 'none'; return; }
    const [, start, length, name, bound, site, index] = command;
    box.textContent = data.names[name] + '\n' + timeText(length) + ', from ' + timeText(start) + ' on\nbound by ' +
      data.bounds[bound] + '\n' + data.sites[site] + '\ncommand ' + index;
    box.style.display = 'block';
    box.style.left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8) + 'px';
    box.style.top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8) + 'px';
  }
  new ResizeObserver(draw).observe(canvas);
  draw();
})();
"""
