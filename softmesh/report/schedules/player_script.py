"""CSS and JavaScript of the animated schedule page."""

from __future__ import annotations

STYLE = """
body { font: 15px/1.5 system-ui, 'Segoe UI', sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem;
       background: var(--paper); color: var(--ink); }
h1 { font-size: 1.3rem; margin: 0; }
h1 + p { color: var(--faded); margin: .2rem 0 1rem; }
svg { height: auto; max-width: 100%; }
#geometry { display: block; width: 100%; margin: 0 auto; max-height: 72vh;
         font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
.legend { text-align: center; }
.controls { display: flex; gap: .5rem; align-items: center; flex-wrap: wrap; margin: .6rem 0; }
.controls input { flex: 1; min-width: 10rem; }
button { font: inherit; min-width: 3.2rem; padding: .2rem .7rem; }
#caption { font-weight: 600; margin: .4rem 0 .2rem; }
#sends { columns: 26rem; margin: 0 0 1rem; padding-left: 1.1rem; min-height: 3rem; font-size: .9rem; }
#sends li { break-inside: avoid; }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--track); padding: .15rem .9rem .15rem 0; text-align: left; }
.token text { fill: var(--ink); }
"""

SCRIPT = r"""
(function () {
  'use strict';
  var data = JSON.parse(document.getElementById('data').textContent);
  var NS = 'http://www.w3.org/2000/svg';
  var byId = function (id) { return document.getElementById(id); };
  var last = data.steps.length, at = 0, playing = false, before = null, shown = -1;
  var calm = window.matchMedia && window.matchMedia('(prefers-reduced-motion: reduce)').matches;

  function make(parent, tag, attributes) {
    var element = document.createElementNS(NS, tag);
    for (var name in attributes) element.setAttribute(name, attributes[name]);
    parent.appendChild(element);
    return element;
  }

  var bars = data.slots.map(function (slot) {
    var place = {x: slot[0], y: slot[1], width: slot[2], height: slot[3], fill: data.bare};
    make(byId('slots'), 'rect', place);
    place.fill = data.fills[slot[4]];
    return make(byId('slots'), 'rect', place);
  });
  var lanes = data.lanes.map(function (lane) {
    return make(byId('heat'), 'path', {d: lane.path, 'stroke-linecap': 'round', 'stroke-width': 0});
  });
  var traffic = byId('traffic');
  var rows = traffic ? Array.prototype.map.call(traffic.tBodies[0].rows, function (row) {
    return {meter: row.querySelector('meter'), text: row.querySelector('.amount')};
  }) : [];

  // carried[step][lane]: how much has crossed a lane before that step
  var carried = [data.lanes.map(function () { return 0; })];
  data.steps.forEach(function (step, number) {
    var next = carried[number].slice();
    step.forEach(function (token) { if (token[0] >= 0) next[token[0]] += token[3]; });
    carried.push(next);
  });

  function amount(carried) {
    if (!data.bytes) return Math.round(carried * 10) / 10 + (carried === 1 ? ' chunk' : ' chunks');
    var units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'], bytes = carried, unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
    return parseFloat(bytes.toPrecision(4)) + ' ' + units[unit];
  }

  function mix(share) {
    var from = [0x6f, 0x9f, 0xcf], to = [0xc2, 0x41, 0x0c];
    return 'rgb(' + from.map(function (value, i) { return Math.round(value + (to[i] - value) * share); }) + ')';
  }

  function fill(step) {
    data.states[step].forEach(function (value, number) {
      var slot = data.slots[number], share = Math.abs(value), bar = bars[number];
      var wide = slot[2] > slot[3];
      bar.setAttribute('width', wide ? slot[2] * share : slot[2]);
      bar.setAttribute('height', wide ? slot[3] : slot[3] * share);
      bar.setAttribute('y', wide ? slot[1] : slot[1] + slot[3] * (1 - share));
      bar.setAttribute('opacity', value < 0 ? 0.3 : 1);
    });
  }

  function warm(step, part) {
    lanes.forEach(function (path, number) {
      var now = carried[step][number];
      if (part > 0) now += (carried[step + 1][number] - now) * part;
      path.setAttribute('stroke', mix(now / data.most));
      path.setAttribute('stroke-width', now ? 0.8 + 3.2 * now / data.most : 0);
      path.setAttribute('stroke-opacity', 0.55);
      if (rows[number]) { rows[number].meter.value = now; rows[number].text.textContent = amount(now); }
    });
  }

  function move(step, part) {
    var layer = byId('moving');
    while (layer.firstChild) layer.removeChild(layer.firstChild);
    if (part <= 0 || step >= last) return;
    data.steps[step].forEach(function (token) {
      if (token[0] < 0) {
        var box = data.boxes[-1 - token[0]];
        make(layer, 'rect', {x: box[0], y: box[1], width: box[2], height: box[3], rx: 4, fill: 'none',
          stroke: data.inks[token[1]], 'stroke-width': 2, 'stroke-opacity': Math.sin(Math.PI * part)});
        return;
      }
      var path = lanes[token[0]], aside = data.lanes[token[0]].aside, width = 4 + 5.2 * token[2].length;
      var point = path.getPointAtLength(path.getTotalLength() * part);
      var away = 1 + Math.abs(aside[0]) * width / 2;  // tokens that meet do not hide one another
      var group = make(layer, 'g', {'class': 'token',
        transform: 'translate(' + (point.x + aside[0] * away) + ' ' + (point.y + aside[1] * away) + ')'});
      make(group, 'rect', {x: -width / 2, y: -5.5, width: width, height: 11, rx: 2.5, fill: data.colours[token[1]],
        stroke: data.inks[token[1]], 'stroke-width': 0.8});
      make(group, 'text', {x: 0, y: 3.1, 'font-size': 8.5, 'text-anchor': 'middle', 'font-weight': 600})
        .textContent = token[2];
    });
  }

  function tell(step) {
    byId('caption').textContent = data.captions[step];
    byId('slider').setAttribute('aria-valuetext', data.captions[step]);
    var list = byId('sends');
    list.textContent = '';
    data.sentences[step].forEach(function (line) {
      list.appendChild(document.createElement('li')).textContent = line;
    });
  }

  function show() {
    var step = Math.min(last, Math.floor(at + 1e-9)), part = Math.max(0, at - step);
    fill(step);
    warm(step, part);
    move(step, part);
    byId('slider').value = step;
    var told = part > 0 ? step + 1 : step;  // while its sends are on their way, a step is the one to tell
    if (told !== shown) { shown = told; tell(told); }
    byId('play').textContent = playing ? 'Pause' : 'Play';
    byId('play').setAttribute('aria-label', playing ? 'Pause' : 'Play');
  }

  function tick(now) {
    if (!playing) return;
    if (before !== null) {
      var speed = parseFloat(byId('speed').value) * 0.55;
      var passed = Math.min(now - before, 100) / 1000 * speed;
      at = Math.min(last, at + passed);
    }
    before = now;
    if (at >= last) playing = false;
    show();
    if (playing) window.requestAnimationFrame(tick);
  }

  function play(wanted) {
    playing = wanted && last > 0;
    before = null;
    if (playing && at >= last) at = 0;
    if (playing) window.requestAnimationFrame(tick);
    show();
  }

  // One step by hand travels, too, unless the reader asked for little motion.
  var goal = null;
  function glide(now) {
    if (goal === null || playing) return;
    if (before !== null) at = Math.min(goal, at + Math.min(now - before, 100) / 600);
    before = now;
    if (at >= goal) goal = null;
    show();
    if (goal !== null) window.requestAnimationFrame(glide);
  }

  function forward() {
    if (playing) play(false);
    var next = Math.min(last, Math.floor(at + 1e-9) + 1);
    if (calm || goal !== null) { goal = null; at = next; show(); return; }
    goal = next; before = null;
    window.requestAnimationFrame(glide);
  }

  function jump(step) { playing = false; goal = null; at = Math.max(0, Math.min(last, step)); show(); }
  function back() { jump(Math.ceil(at - 1e-9) - 1); }

  byId('play').addEventListener('click', function () { goal = null; play(!playing); });
  byId('back').addEventListener('click', back);
  byId('forward').addEventListener('click', forward);
  byId('slider').addEventListener('input', function () { jump(parseInt(this.value, 10)); });
  document.addEventListener('keydown', function (event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    var tag = event.target.tagName;
    if (tag === 'INPUT' || tag === 'SELECT') return;  // they have keys of their own
    if (event.key === 'ArrowRight') forward();
    else if (event.key === 'ArrowLeft') back();
    else if (event.key === 'Home') jump(0);
    else if (event.key === 'End') jump(last);
    else if (event.key === ' ' && tag !== 'BUTTON' && tag !== 'SUMMARY') play(!playing);
    else return;
    event.preventDefault();
  });
  byId('player').hidden = false;
  document.querySelector('details').open = false;
  function visit() { jump(parseFloat(window.location.hash.replace('#step-', '')) || 0); }
  window.addEventListener('hashchange', visit);
  visit();
})();
"""
