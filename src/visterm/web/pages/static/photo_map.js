// The map of the photos on one canvas: dots as pixels of one image, thumbnails of some photos once few are in view.
"use strict";
(() => {
  const { one, all, tell, part, put } = window.visterm;
  const canvas = one("#photo-map");
  if (!canvas) return;
  const FEW = 600; // photos in view from which on thumbnails are drawn
  const THUMB = 96; // pixels of a thumbnail; each has a cell of its own
  const KEPT = 500; // thumbnails in memory
  const AT_ONCE = 6; // thumbnails that are fetched at the same time
  const MOST_ZOOM = 400;
  const pen = canvas.getContext("2d", { alpha: false });
  const counted = one("#n-in-view");
  const most = Number(canvas.dataset.most);
  const view = { x: 0.5, y: 0.5, zoom: 1 }; // what is in the middle; zoom 1 shows all
  const thumbs = new Map(); // pictures by id, the latest used last
  const waiting = [];
  let ids = new Uint32Array(0), places = new Uint16Array(0); // x and y in turn
  let width = 1, height = 1, ratio = 1, pixels = null, image = null, colours = { paper: 0, dot: 0 };
  let fetching = 0, due = false, resting, listed = "";

  // ---- Drawing -----------------------------------------------------------------------------------------------------

  const colourOf = (name) => {
    const [red, green, blue] = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1).match(/../g)
      .map((part) => parseInt(part, 16));
    return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
  };

  function resize() {
    ratio = Math.min(window.devicePixelRatio || 1, 2);
    width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    canvas.width = width;
    canvas.height = height;
    image = pen.createImageData(width, height);
    pixels = new Uint32Array(image.data.buffer);
    colours = { paper: colourOf("--sheet"), dot: colourOf("--accent") };
    moveOn();
  }

  const scale = () => (Math.min(width, height) * 0.92 * view.zoom) / 65535; // pixels of a step

  function draw() {
    due = false;
    const s = scale(), left = width / 2 - view.x * 65535 * s, top = height / 2 - view.y * 65535 * s;
    const dot = Math.round(ratio * (ids.length > 2000 * view.zoom ** 2 ? 2 : ids.length > 200 * view.zoom ** 2 ? 3 : 5));
    const { dot: colour } = colours;
    pixels.fill(colours.paper);
    const inView = [];
    for (let i = 0, n = ids.length; i < n; i++) {
      const x = Math.floor(left + places[2 * i] * s), y = Math.floor(top + places[2 * i + 1] * s);
      if (x < 0 || y < 0 || x >= width - dot || y >= height - dot) continue;
      if (inView.length <= FEW) inView.push(i);
      for (let row = y * width + x, last = row + dot * width; row < last; row += width)
        for (let at = row; at < row + dot; at++) pixels[at] = colour;
    }
    pen.putImageData(image, 0, 0);
    if (inView.length <= FEW) drawThumbs(inView, s, left, top);
  }

  function redraw() {
    if (due) return;
    due = true;
    requestAnimationFrame(draw);
  }

  function moveOn() { // after what is in view has changed
    redraw();
    clearTimeout(resting);
    resting = setTimeout(list, 150);
  }

  function drawThumbs(inView, s, left, top) {
    const side = THUMB * ratio, taken = new Set(), missing = [];
    for (const i of inView) {
      const x = left + places[2 * i] * s, y = top + places[2 * i + 1] * s;
      // A cell of the map, not of the screen, so that thumbnails stay while one moves
      const cell = `${Math.floor((x - left) / side)} ${Math.floor((y - top) / side)}`;
      if (taken.has(cell)) continue;
      taken.add(cell);
      const found = thumbs.get(ids[i]);
      if (!found) missing.push(ids[i]);
      if (!found?.width) continue;
      thumbs.delete(ids[i]);
      thumbs.set(ids[i], found);
      pen.drawImage(found, Math.round(x - found.width / 2), Math.round(y - found.height / 2));
    }
    waiting.splice(0, waiting.length, ...missing); // what has gone out of view is not fetched
    fetchThumbs();
  }

  function fetchThumbs() {
    while (fetching < AT_ONCE && waiting.length) {
      const id = waiting.shift();
      thumbs.set(id, {}); // not to be fetched again, also if it can't be shown
      fetching++;
      fetchThumb(id).finally(() => {
        fetching--;
        redraw();
        fetchThumbs();
      });
      if (thumbs.size > KEPT) thumbs.delete(thumbs.keys().next().value);
    }
  }

  async function fetchThumb(id) {
    const made = new Image();
    made.src = `/api/v1/images/${id}/thumbnail?size=160`;
    try {
      await made.decode();
    } catch {
      return; // a photo whose file is gone stays a dot
    }
    const fit = (THUMB * ratio * 0.9) / Math.max(made.naturalWidth, made.naturalHeight);
    const size = { resizeWidth: Math.ceil(made.naturalWidth * fit), resizeHeight: Math.ceil(made.naturalHeight * fit) };
    thumbs.set(id, await createImageBitmap(made, { ...size, resizeQuality: "medium" })); // scaled once, not each frame
  }

  // ---- The same as a list ------------------------------------------------------------------------------------------

  function nearMiddle() {
    const s = scale(), halfWidth = width / 2 / s, halfHeight = height / 2 / s, mx = view.x * 65535, my = view.y * 65535;
    const found = [];
    for (let i = 0; i < ids.length; i++) {
      const dx = places[2 * i] - mx, dy = places[2 * i + 1] - my;
      if (Math.abs(dx) <= halfWidth && Math.abs(dy) <= halfHeight) found.push([dx * dx + dy * dy, ids[i]]);
    }
    return found.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, id]) => id);
  }

  async function list() {
    if (!ids.length) return;
    const found = nearMiddle(), shown = found.slice(0, most).join(",");
    counted.textContent = `${found.length.toLocaleString("en")} ${found.length === 1 ? "photo" : "photos"}` +
      (found.length > most ? `, the ${most} in the middle are listed` : "");
    if (shown === listed) return;
    listed = shown;
    try {
      const html = shown ? await part(`/map/photos?ids=${shown}`) : "";
      if (listed === shown && !all(".choose:checked", one("#in-view")).length) put(one("#in-view"), html, true);
    } catch (error) {
      tell(error.message);
    }
  }

  // ---- Moving ------------------------------------------------------------------------------------------------------

  const onMap = (event) => {
    const box = canvas.getBoundingClientRect(), s = scale() * 65535;
    return {
      x: view.x + ((event.clientX - box.left) * ratio - width / 2) / s,
      y: view.y + ((event.clientY - box.top) * ratio - height / 2) / s,
    };
  };

  function zoomBy(factor, at = view) {
    const next = factor ? Math.min(Math.max(view.zoom * factor, 1), MOST_ZOOM) : 1;
    const share = view.zoom / next, { x, y } = at;
    view.x = x - (x - view.x) * share;
    view.y = y - (y - view.y) * share;
    view.zoom = next;
    if (next === 1) view.x = view.y = 0.5;
    moveOn();
  }

  function moveBy(x, y) { // in pixels of the canvas
    const s = scale() * 65535;
    view.x = Math.min(Math.max(view.x + x / s, 0), 1);
    view.y = Math.min(Math.max(view.y + y / s, 0), 1);
    moveOn();
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 120) / 400), onMap(event));
  }, { passive: false });

  const fingers = new Map();
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (!fingers.size) moved = false;
    fingers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
    if (other) {
      const apart = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      zoomBy(Math.max(apart(event), 1) / Math.max(apart(before), 1), onMap(other));
      moved = true;
    } else if (moved || Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY) > 4) {
      moved = true;
      moveBy((before.clientX - event.clientX) * ratio, (before.clientY - event.clientY) * ratio);
    } else return;
    fingers.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"])
    canvas.addEventListener(end, (event) => fingers.delete(event.pointerId));

  const open = (id) => id !== undefined && location.assign(`/image/${id}`);
  canvas.addEventListener("click", (event) => {
    if (moved) return;
    const at = onMap(event), reach = (THUMB * ratio) / 2 / (scale() * 65535);
    let best = reach * reach, found;
    for (let i = 0; i < ids.length; i++) {
      const away = (places[2 * i] / 65535 - at.x) ** 2 + (places[2 * i + 1] / 65535 - at.y) ** 2;
      if (away < best) [best, found] = [away, ids[i]];
    }
    open(found);
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key.startsWith("Arrow")) return;
    if (event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog, #in-view")) return;
    const step = Math.min(width, height) / 6;
    const does = {
      ArrowLeft: () => moveBy(-step, 0), ArrowRight: () => moveBy(step, 0),
      ArrowUp: () => moveBy(0, -step), ArrowDown: () => moveBy(0, step),
      "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: () => zoomBy(0),
      Enter: event.target === canvas ? () => open(nearMiddle()[0]) : undefined,
    }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    does();
  }, true);

  const buttons = one(".map-buttons");
  buttons.hidden = false;
  buttons.addEventListener("click", (event) => {
    const way = event.target.dataset?.zoom;
    if (way !== undefined) zoomBy({ 1: 1.6, "-1": 1 / 1.6, 0: 0 }[way]);
  });
  resize(); // the places may come before the observer's first call
  new ResizeObserver(resize).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);

  (async () => {
    const answer = await fetch(canvas.dataset.places);
    if (!answer.ok) return tell("The places of the photos could not be read. Reload the page.");
    const content = await answer.arrayBuffer(), n = content.byteLength / 8;
    ids = new Uint32Array(content, 0, n);
    places = new Uint16Array(content, 4 * n, 2 * n);
    canvas.dataset.ready = n;
    return moveOn();
  })();
})();
