// The map of the photos on one canvas: dots as pixels of one image, thumbnails of some photos once few are in view.
"use strict";
(() => {
  const { one, all, notify, fetchPart, putHtml, dragAndZoom } = window.visterm;
  const canvas = one("#photo-map");
  if (!canvas) return;
  const MAX_THUMBS = 600; // photos in view up to which thumbnails are drawn
  const THUMB_SIDE = 96; // pixels of a thumbnail's cell; thumbnails never share a cell
  const MAX_KEPT_THUMBS = 500; // thumbnails in memory
  const MAX_FETCHES = 6; // thumbnails that are fetched at the same time
  const MAX_ZOOM = 400;
  const pen = canvas.getContext("2d", { alpha: false });
  const countText = one("#n-in-view");
  const maxListed = Number(canvas.dataset.most);
  const view = { x: 0.5, y: 0.5, zoom: 1 }; // the middle of the view; zoom 1 shows all photos
  const clusters = JSON.parse(canvas.dataset.clusters); // pairs of a photo and its tag: what is where
  const thumbs = new Map(); // pictures by id, the most recently used last
  const queue = [];
  let ids = new Uint32Array(0), places = new Uint16Array(0); // alternating x and y
  let width = 1, height = 1, ratio = 1, pixels = null, image = null, colours = { paper: 0, dot: 0 };
  let nFetching = 0, isDrawing = false, listTimer, listedIds = "";

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
    viewChanged();
  }

  const scale = () => (Math.min(width, height) * 0.92 * view.zoom) / 65535; // pixels per unit of the coordinates

  function draw() {
    isDrawing = false;
    const s = scale(), left = width / 2 - view.x * 65535 * s, top = height / 2 - view.y * 65535 * s;
    const dot = Math.round(ratio * (ids.length > 2000 * view.zoom ** 2 ? 2 : ids.length > 200 * view.zoom ** 2 ? 3 : 5));
    const { dot: colour } = colours;
    pixels.fill(colours.paper);
    const inView = [];
    for (let i = 0, n = ids.length; i < n; i++) {
      const x = Math.floor(left + places[2 * i] * s), y = Math.floor(top + places[2 * i + 1] * s);
      if (x < 0 || y < 0 || x >= width - dot || y >= height - dot) continue;
      if (inView.length <= MAX_THUMBS) inView.push(i);
      for (let row = y * width + x, last = row + dot * width; row < last; row += width)
        for (let at = row; at < row + dot; at++) pixels[at] = colour;
    }
    pen.putImageData(image, 0, 0);
    const labelled = clusters.map(([id, tag]) => [ids.indexOf(id), tag]).filter(([i]) => i >= 0);
    const shown = drawThumbs(inView.length <= MAX_THUMBS ? inView : labelled.map(([i]) => i), s, left, top);
    for (const [i, tag] of labelled)
      if (shown.has(i)) drawLabel(tag, left + places[2 * i] * s, top + places[2 * i + 1] * s + (THUMB_SIDE * ratio) / 2);
  }

  function redraw() {
    if (isDrawing) return;
    isDrawing = true;
    requestAnimationFrame(draw);
  }

  function viewChanged() {
    redraw();
    clearTimeout(listTimer);
    listTimer = setTimeout(showList, 150);
  }

  function drawThumbs(inView, s, left, top) {
    const side = THUMB_SIDE * ratio, usedCells = new Set(), shown = new Set(), missingIds = [];
    for (const i of inView) {
      const x = left + places[2 * i] * s, y = top + places[2 * i + 1] * s;
      // A cell of the map, not of the screen, so that thumbnails stay in place while the map moves
      const cell = `${Math.floor((x - left) / side)} ${Math.floor((y - top) / side)}`;
      if (usedCells.has(cell)) continue;
      usedCells.add(cell);
      shown.add(i);
      const thumb = thumbs.get(ids[i]);
      if (!thumb) missingIds.push(ids[i]);
      if (!thumb?.width) continue;
      thumbs.delete(ids[i]);
      thumbs.set(ids[i], thumb);
      pen.drawImage(thumb, Math.round(x - thumb.width / 2), Math.round(y - thumb.height / 2));
    }
    queue.splice(0, queue.length, ...missingIds); // photos out of view are not fetched
    fetchThumbs();
    return shown;
  }

  function drawLabel(tag, x, y) {
    if (!tag) return;
    const size = 14 * ratio, style = getComputedStyle(document.documentElement);
    pen.font = `600 ${size}px system-ui, sans-serif`;
    pen.textAlign = "center";
    const half = pen.measureText(tag).width / 2 + size / 3;
    pen.fillStyle = style.getPropertyValue("--sheet");
    pen.fillRect(x - half, y - size, 2 * half, size * 1.5);
    pen.fillStyle = style.getPropertyValue("--ink");
    pen.fillText(tag, x, y + size / 8);
  }

  function fetchThumbs() {
    while (nFetching < MAX_FETCHES && queue.length) {
      const id = queue.shift();
      thumbs.set(id, {}); // not fetched again, even if it can't be shown
      nFetching++;
      fetchThumb(id).finally(() => {
        nFetching--;
        redraw();
        fetchThumbs();
      });
      if (thumbs.size > MAX_KEPT_THUMBS) thumbs.delete(thumbs.keys().next().value);
    }
  }

  async function fetchThumb(id) {
    const photo = new Image();
    photo.src = `/api/v1/images/${id}/thumbnail?size=160`;
    try {
      await photo.decode();
    } catch {
      return; // a photo whose file is gone stays a dot
    }
    const fit = (THUMB_SIDE * ratio * 0.9) / Math.max(photo.naturalWidth, photo.naturalHeight);
    const size = { resizeWidth: Math.ceil(photo.naturalWidth * fit), resizeHeight: Math.ceil(photo.naturalHeight * fit) };
    thumbs.set(id, await createImageBitmap(photo, { ...size, resizeQuality: "medium" })); // scaled once, not each frame
  }

  // ---- Photos in view as a list ------------------------------------------------------------------------------------------

  function nearMiddle() {
    const s = scale(), halfWidth = width / 2 / s, halfHeight = height / 2 / s, mx = view.x * 65535, my = view.y * 65535;
    const inView = [];
    for (let i = 0; i < ids.length; i++) {
      const dx = places[2 * i] - mx, dy = places[2 * i + 1] - my;
      if (Math.abs(dx) <= halfWidth && Math.abs(dy) <= halfHeight) inView.push([dx * dx + dy * dy, ids[i]]);
    }
    return inView.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, id]) => id);
  }

  async function showList() {
    if (!ids.length) return;
    const sortedIds = nearMiddle(), shownIds = sortedIds.slice(0, maxListed).join(",");
    countText.textContent = `${sortedIds.length.toLocaleString("en")} ${sortedIds.length === 1 ? "photo" : "photos"}` +
      (sortedIds.length > maxListed ? `, the ${maxListed} in the middle are listed` : "");
    if (shownIds === listedIds) return;
    listedIds = shownIds;
    try {
      const html = shownIds ? await fetchPart(`/map/photos?ids=${shownIds}`) : "";
      if (listedIds === shownIds && !all(".choose:checked", one("#in-view")).length) putHtml(one("#in-view"), html, true);
    } catch (error) {
      notify(error.message);
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
    const next = factor ? Math.min(Math.max(view.zoom * factor, 1), MAX_ZOOM) : 1;
    const share = view.zoom / next, { x, y } = at;
    view.x = x - (x - view.x) * share;
    view.y = y - (y - view.y) * share;
    view.zoom = next;
    if (next === 1) view.x = view.y = 0.5;
    viewChanged();
  }

  function moveBy(x, y) {
    const s = (scale() * 65535) / ratio;
    view.x = Math.min(Math.max(view.x + x / s, 0), 1);
    view.y = Math.min(Math.max(view.y + y / s, 0), 1);
    viewChanged();
  }

  const actionOf = dragAndZoom(canvas, { moveBy, zoomBy, onMap });
  const open = (id) => id !== undefined && location.assign(`/image/${id}`);
  canvas.addEventListener("click", (event) => {
    const at = onMap(event), maxDistance = (THUMB_SIDE * ratio) / 2 / (scale() * 65535);
    let best = maxDistance * maxDistance, nearestId;
    for (let i = 0; i < ids.length; i++) {
      const squaredDistance = (places[2 * i] / 65535 - at.x) ** 2 + (places[2 * i + 1] / 65535 - at.y) ** 2;
      if (squaredDistance < best) [best, nearestId] = [squaredDistance, ids[i]];
    }
    open(nearestId);
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key.startsWith("Arrow")) return;
    if (event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog, #in-view")) return;
    const action = event.key === "Enter" && event.target === canvas ? () => open(nearMiddle()[0]) : actionOf(event.key);
    if (!action) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    action();
  }, true);

  resize(); // the coordinates may arrive before the observer's first call
  new ResizeObserver(resize).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);

  (async () => {
    const answer = await fetch(canvas.dataset.places);
    if (!answer.ok) return notify("The places of the photos could not be read. Reload the page.");
    const content = await answer.arrayBuffer(), n = content.byteLength / 8;
    ids = new Uint32Array(content, 0, n);
    places = new Uint16Array(content, 4 * n, 2 * n);
    canvas.dataset.ready = n;
    return viewChanged();
  })();
})();
