// The page's script. Everything works without it; it adds keys and saves reloads.
"use strict";
(() => {
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const page = document.body.dataset.page;
  document.documentElement.classList.add("script");

  // ---- Messages: shown below the header, where they cover no button, and read by screen readers ------------------------------------

  // Replace letters that are invisible or change the direction of text, as the pages do
  const HIDDEN_LETTERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const printable = (text) => text.replace(HIDDEN_LETTERS, "\ufffd");

  const statusLine = one("#said");
  let statusTimer;

  function notify(text) {
    if (!text) return;
    statusLine.textContent = "";
    requestAnimationFrame(() => (statusLine.textContent = text));
    clearTimeout(statusTimer);
    statusTimer = setTimeout(() => (statusLine.textContent = ""), 5000);
  }

  // ---- Parts of pages, which the server renders and escapes ------------------------------------------------------

  class Busy extends Error {}

  async function fetchPart(address, options = {}) {
    let answer;
    try {
      answer = await fetch(address, { ...options, headers: { "x-part": "1" } });
    } catch {
      throw new Error("The service doesn't answer. Is it still running?");
    }
    const text = await answer.text();
    if (answer.ok) return text;
    if (answer.status === 503) throw new Busy("The service is busy. Trying again …");
    let message = `The service answered ${answer.status}.`;
    try {
      const content = JSON.parse(text);
      message = content.message || content.error.message;
    } catch { /* not the service's JSON: the message only has the status */ }
    throw new Error(message);
  }

  function parseHtml(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }

  function putHtml(target, html, inside = false) {
    const content = parseHtml(html);
    const newElements = [...content.children];
    if (one("details[open]", target)) one("details", content)?.setAttribute("open", ""); // open details stay open
    if (inside) target.replaceChildren(content);
    else target.replaceWith(content);
    newElements.forEach(activate);
  }

  async function loadInto(element, address, inside) {
    try {
      putHtml(element, await fetchPart(address), inside);
    } catch (error) {
      if (error instanceof Busy) setTimeout(() => element.isConnected && loadInto(element, address, inside), 3000);
      else notify(error.message);
    }
  }

  const within = (root, selector) => [...(root.matches?.(selector) ? [root] : []), ...all(selector, root)];

  const nearEnd = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      nearEnd.unobserve(entry.target);
      loadInto(entry.target, one("a", entry.target).href, false);
    }
  }, { rootMargin: "900px" });

  function activate(root) {
    within(root, "[data-load]").forEach((element) => loadInto(element, element.dataset.load, true));
    within(root, "[data-again]").forEach((element) =>
      setTimeout(() => element.isConnected && loadInto(element, element.dataset.again, false), element.dataset.after || 700));
    within(root, ".more").forEach((element) => nearEnd.observe(element));
    within(root, "[data-complete]").forEach(addCompletion);
    within(root, "#map").forEach(addMapControls);
    within(root, ".screen").forEach(watchTiles);
    if (root === document.body) return; // messages of a page that just loaded are not news
    within(root, "[data-said]").forEach((element) => notify(element.dataset.said));
    within(root, "[data-focus]").slice(0, 1).forEach((element) => element.focus());
  }

  // The content of <details> is loaded when they are opened for the first time
  document.addEventListener("toggle", (event) => {
    const placeholder = event.target.open && one(":scope > [data-open]", event.target);
    if (placeholder) loadInto(placeholder, placeholder.dataset.open, false);
  }, true);

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const { into, inside, busy } = form.dataset;
    if ((!into && !inside) || event.submitter?.hasAttribute("formaction")) return; // a download leaves the page as it is
    event.preventDefault();
    if (busy) return;
    form.dataset.busy = "1";
    const body = new URLSearchParams(new FormData(form, event.submitter));
    const rowIndex = rows().findIndex((row) => row.contains(document.activeElement));
    const focusedId = document.activeElement.id;
    try {
      putHtml(one(into || inside), await fetchPart(form.getAttribute("action"), { method: "POST", body }), Boolean(inside));
      document.dispatchEvent(new CustomEvent("visterm:done", { detail: { into: into || inside } }));
      if (into === "#picture-tags") {
        lastAnswer = { tag: body.get("tag"), do: body.get("do") };
        if (focusedId === "new-tag") one("#new-tag").focus();
        else focusOn(rows()[Math.min(Math.max(rowIndex, 0), rows().length - 1)]);
      }
    } catch (error) {
      notify(error.message);
    } finally {
      delete form.dataset.busy;
    }
  });

  // ---- Many photos with one question: only those that were wholly on the screen are sent ----------------------------

  function watchTiles(screen) {
    const [seen, boxes] = [all("[name=image]", screen), all("[name=wrong]", screen)];
    if (!seen.length) return;
    const update = () => {
      const top = Math.max(one(".top").getBoundingClientRect().bottom, 0) - 1;
      const bottom = one("#answers", screen).getBoundingClientRect().top + 1;
      for (const field of seen.filter(({ disabled }) => disabled)) {
        const [box, photo] = [field.closest("li").getBoundingClientRect(), one("img", field.closest("li"))];
        field.disabled = !(photo.complete && photo.naturalWidth && box.top >= top && box.bottom <= bottom);
      }
      one("#n-right").textContent = seen.filter((field, i) => !field.disabled && !boxes[i].checked).length;
    };
    const follow = () => (screen.isConnected ? update() : stop.abort());
    const stop = new AbortController(), options = { signal: stop.signal, passive: true };
    seen.forEach((field) => (field.disabled = true));
    all("img", screen).forEach((photo) => photo.addEventListener("load", update, options));
    screen.addEventListener("change", update, options);
    for (const event of ["scroll", "resize"]) addEventListener(event, follow, options);
    update();
  }

  // ---- Completion of tags ----------------------------------------------------------------------------------------

  const TYPED_TAG = {
    words: /(^|[\s,;])(-?"?)([^\s,;"]*|(?<=")[^"]*)$/,
    list: /(^|,)(\s*)([^,]*)$/,
    tag: /^()()(.*)$/,
  };
  let nLists = 0;

  function addCompletion(input) {
    if (input.getAttribute("role") === "combobox") return;
    const kind = input.dataset.complete;
    const list = document.createElement("ul");
    list.id = `completions-${++nLists}`;
    list.className = "completions";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Tags");
    list.hidden = true;
    input.after(list);
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false",
    })) input.setAttribute(name, value);
    let index = -1, typingTimer, request;

    const close = () => {
      index = -1;
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };
    const choose = (option) => {
      const [text, separator, sign, typed] = input.value.match(TYPED_TAG[kind]) || [input.value, "", "", ""];
      const start = input.value.slice(0, input.value.length - text.length);
      const tag = option.dataset.tag;
      if (kind === "words") {
        const plain = /^[^\s,;"-][^\s,;"]*$/.test(tag);
        const minus = sign.startsWith("-") ? "-" : "";
        input.value = `${start}${separator}${minus}${plain ? tag : `"${tag.replaceAll('"', '""')}"`} `;
      } else if (kind === "list") input.value = `${start}${separator}${separator ? " " : ""}${tag}`;
      else input.value = tag;
      close();
      input.focus();
      if (input.closest("form.add")) input.form.requestSubmit();
    };
    const move = (step) => {
      const options = [...list.children];
      options[index]?.removeAttribute("aria-selected");
      index = (index + step + options.length + 1) % (options.length + 1);
      if (index === options.length) {
        index = -1;
        input.removeAttribute("aria-activedescendant");
        return;
      }
      options[index].setAttribute("aria-selected", "true");
      options[index].scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", options[index].id);
    };
    const show = async () => {
      const match = input.value.match(TYPED_TAG[kind]);
      if (!match || !match[3].trim()) return close();
      request?.abort();
      request = new AbortController();
      let tags;
      try {
        const answer = await fetch(`/api/v1/tags/complete?${new URLSearchParams({ prefix: match[3].trim(), k: 8, names: kind === "words" })}`,
          { signal: request.signal });
        if (!answer.ok) return close();
        ({ tags } = await answer.json());
      } catch {
        return undefined; // another letter was typed meanwhile, or the service has ended: the search works without completion
      }
      if (document.activeElement !== input) return close();
      list.replaceChildren(...tags.map(({ tag, images, kind: of }, number) => {
        const option = document.createElement("li");
        option.id = `${list.id}-${number}`;
        option.dataset.tag = tag;
        option.setAttribute("role", "option");
        const count = document.createElement("small");
        count.textContent = (images ? images.toLocaleString("en") : "no photos yet") + (of === "tag" ? "" : ` · ${of}`);
        option.classList.toggle("without", !images);
        option.append(printable(tag), " ", count);
        option.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          choose(option);
        });
        return option;
      }));
      index = -1;
      list.hidden = !tags.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      return undefined;
    };
    input.addEventListener("input", () => {
      clearTimeout(typingTimer);
      typingTimer = setTimeout(show, 90);
    });
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (list.hidden) return;
      if (event.key === "ArrowDown") move(1);
      else if (event.key === "ArrowUp") move(-1);
      else if (event.key === "Enter" && index >= 0) choose(list.children[index]);
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  // ---- Heat: where in the picture a tag comes from ---------------------------------------------------------------

  let heatTimer;

  function showHeat(tag) {
    const figure = one("#picture-figure");
    hideHeat();
    if (!figure) return;
    const heat = new Image();
    heat.className = "heat";
    heat.alt = "";
    heat.dataset.tag = tag;
    heat.src = `/api/v1/images/${figure.dataset.image}/heat?${new URLSearchParams({ tag, size: 640 })}`;
    heat.addEventListener("load", () => {
      const caption = one("#heat-said");
      if (caption && heat.isConnected) caption.textContent = `Where “${printable(tag)}” comes from`;
    });
    heat.addEventListener("error", () => heat.remove());
    one(".frame", figure).append(heat);
  }

  function hideHeat() {
    clearTimeout(heatTimer);
    all(".heat").forEach((heat) => heat.remove());
    const caption = one("#heat-said");
    if (caption) caption.textContent = "";
  }

  function heatOnRest(start, end) {
    document.addEventListener(start, (event) => {
      const row = event.target.closest?.("#picture-tags [data-heat]");
      if (!row || one(".heat")?.dataset.tag === row.dataset.tag) return;
      clearTimeout(heatTimer);
      heatTimer = setTimeout(() => showHeat(row.dataset.tag), 220);
    });
    document.addEventListener(end, (event) => {
      const row = event.target.closest?.("#picture-tags [data-heat]");
      if (row && !row.contains(event.relatedTarget)) hideHeat();
    });
  }
  heatOnRest("pointerover", "pointerout");
  heatOnRest("focusin", "focusout");

  // ---- A photo in full size, and the next and previous photo ------------------------------------------------------------

  const zoom = one("#zoom");
  if (zoom) {
    const region = one("[role=region]", zoom);
    const open = (event) => {
      event.preventDefault();
      const photo = new Image();
      photo.alt = one("#picture-figure img").alt;
      photo.src = one("[data-zoom]").href;
      photo.addEventListener("error", () => notify("The photo can't be shown in full size: its file is gone or damaged."));
      region.replaceChildren(photo);
      zoom.showModal();
      region.focus();
    };
    all("[data-zoom], .stage .frame > img").forEach((element) => element.addEventListener("click", open));
    region.addEventListener("click", () => zoom.close());
    zoom.addEventListener("keydown", (event) => event.key === "z" && zoom.close());

    const stage = one(".stage");
    let touch = null;
    stage.addEventListener("touchstart", ({ touches }) => (touch = touches.length === 1 ? touches[0] : null), { passive: true });
    stage.addEventListener("touchend", ({ changedTouches }) => {
      if (!touch) return;
      const [dx, dy] = [changedTouches[0].clientX - touch.clientX, changedTouches[0].clientY - touch.clientY];
      touch = null;
      if (Math.abs(dx) > 50 && Math.abs(dx) > 2 * Math.abs(dy)) one(`[rel=${dx < 0 ? "next" : "prev"}]`)?.click();
    });
  }

  // ---- A picture that is dropped ---------------------------------------------------------------------------------

  const byPicture = one("#by-picture");
  if (byPicture) {
    const file = one("input[type=file]", byPicture);
    let isOwnDrag = false;
    file.addEventListener("change", () => file.files.length && byPicture.requestSubmit());
    document.addEventListener("dragstart", () => (isOwnDrag = true));
    document.addEventListener("dragend", () => (isOwnDrag = false));
    const isFileDrag = (event) => !isOwnDrag && event.dataTransfer?.types.includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!isFileDrag(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!isFileDrag(event)) return;
      event.preventDefault();
      const picture = [...event.dataTransfer.files].find((dropped) => dropped.type.startsWith("image/"));
      if (!picture) return notify("That isn't an image file.");
      const files = new DataTransfer();
      files.items.add(picture);
      file.files = files.files;
      byPicture.requestSubmit();
    });
  }

  // ---- Maps, of tags and of photos ---------------------------------------------------------------------------------

  // Lets people drag and zoom a map; returns what a key does. `moveBy` expects pixels of the page.
  function dragAndZoom(map, { moveBy, zoomBy, onMap }) {
    const fingers = new Map();
    let hasMoved = false;
    map.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoomBy(Math.exp(-Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 120) / 400), onMap(event));
    }, { passive: false });
    map.addEventListener("pointerdown", (event) => {
      if (!fingers.size) hasMoved = false;
      fingers.set(event.pointerId, event);
    });
    map.addEventListener("pointermove", (event) => {
      const previous = fingers.get(event.pointerId);
      if (!previous) return;
      const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
      if (other) {
        const distance = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
        zoomBy(Math.max(distance(event), 1) / Math.max(distance(previous), 1), onMap(other));
      } else if (hasMoved || Math.hypot(event.clientX - previous.clientX, event.clientY - previous.clientY) > 4) {
        if (!map.hasPointerCapture(event.pointerId)) map.setPointerCapture(event.pointerId);
        moveBy(previous.clientX - event.clientX, previous.clientY - event.clientY);
      } else return;
      hasMoved = true;
      fingers.set(event.pointerId, event);
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"])
      map.addEventListener(end, (event) => fingers.delete(event.pointerId));
    map.addEventListener("click", (event) => { // the end of a drag opens nothing
      if (!hasMoved) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    }, true);
    const buttons = one(".map-buttons");
    buttons.hidden = false;
    buttons.addEventListener("click", (event) => {
      const direction = event.target.dataset?.zoom;
      if (direction !== undefined) zoomBy({ 1: 1.6, "-1": 1 / 1.6, 0: 0 }[direction]);
    });
    return (key) => {
      const step = Math.min(map.clientWidth, map.clientHeight) / 6;
      return {
        ArrowLeft: () => moveBy(-step, 0), ArrowRight: () => moveBy(step, 0),
        ArrowUp: () => moveBy(0, -step), ArrowDown: () => moveBy(0, step),
        "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: () => zoomBy(0),
      }[key];
    };
  }

  function addMapControls(map) {
    const MAP_SIDE = 1000, ZOOMS = [1, 2, 4, 8, 16, 32, 64];
    let zoom = 1, x = 0, y = 0;

    const unit = () => MAP_SIDE / zoom / Math.min(map.clientWidth, map.clientHeight);
    const draw = () => {
      const viewSide = MAP_SIDE / zoom;
      x = Math.min(Math.max(x, -viewSide / 2), MAP_SIDE - viewSide / 2);
      y = Math.min(Math.max(y, -viewSide / 2), MAP_SIDE - viewSide / 2);
      map.setAttribute("viewBox", `${x} ${y} ${viewSide} ${viewSide}`);
      map.style.setProperty("--zoom", 1 / unit()); // so that names are as large as the page's text at any zoom
      map.dataset.at = ZOOMS.filter((level) => level <= 4.01 / unit()).join(" ");
    };
    const zoomBy = (factor, at = { x: x + MAP_SIDE / zoom / 2, y: y + MAP_SIDE / zoom / 2 }) => {
      const next = Math.min(Math.max(zoom * factor, 1), 32);
      x = at.x - ((at.x - x) * zoom) / next;
      y = at.y - ((at.y - y) * zoom) / next;
      zoom = next;
      if (zoom === 1) x = y = 0;
      draw();
    };
    const moveBy = (right, down) => {
      x += right * unit();
      y += down * unit();
      draw();
    };
    const onMap = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());

    const actionOf = dragAndZoom(map, { moveBy, zoomBy, onMap });
    new ResizeObserver(draw).observe(map);
    map.addEventListener("dragstart", (event) => event.preventDefault());
    map.addEventListener("keydown", (event) => {
      const action = actionOf(event.key);
      if (!action || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    });
    draw();
  }

  // ---- Keys ------------------------------------------------------------------------------------------------------

  const keys = one("#keys");
  const showKeys = one("#show-keys");
  showKeys.hidden = false;
  showKeys.addEventListener("click", () => keys.showModal());
  let lastAnswer = null;
  let pageKeyTimer = 0; // timer after a "g", during which the next key opens a page

  const rows = () => all("[data-item], [data-row]").filter((row) => row.checkVisibility());
  const inRow = (row) => (row?.matches("tr") ? one("a", row) : row);
  const focusOn = (row) => inRow(row)?.focus();
  const focused = () => rows().find((row) => row.contains(document.activeElement));

  function step(by) {
    const items = rows();
    if (!items.length) return;
    const index = items.indexOf(focused());
    focusOn(items[index < 0 ? 0 : Math.min(Math.max(index + by, 0), items.length - 1)]);
  }

  function columns() {
    const items = rows();
    const next = items.findIndex((row) => row.getBoundingClientRect().top > items[0].getBoundingClientRect().top + 4);
    return next > 0 ? next : items.length;
  }

  function clickInRow(...kinds) {
    const row = focused() || one(".predicted [data-row]");
    const button = row && kinds.map((kind) => one(`button.${kind}`, row)).find(Boolean);
    button?.click();
    return Boolean(button);
  }

  async function undoLast() {
    const inverse = lastAnswer && { accept: "back", reject: "back", back: null, give: "take", take: "give" }[lastAnswer.do];
    if (!inverse) return void clickInRow("back");
    const body = new URLSearchParams({ tag: lastAnswer.tag, do: inverse });
    lastAnswer = null;
    try {
      putHtml(one("#picture-tags"), await fetchPart(`${location.pathname}/tags`, { method: "POST", body }));
      focusOn(rows().find((row) => row.dataset.tag === body.get("tag")));
    } catch (error) {
      notify(error.message);
    }
  }

  function toggle(details) {
    if (!details) return;
    details.open = !details.open;
    (details.open && one("input:not([type=hidden])", details) || one("summary", details)).focus();
  }

  function fold(open) {
    const row = focused()?.closest("li");
    const details = row && one(":scope > details", row);
    if (open || details?.open) {
      if (details) details.open = open;
      return;
    }
    const parent = row?.parentElement.closest("details");
    if (!parent) return;
    parent.open = false;
    one("a", parent.parentElement).focus();
  }

  const ARROWS = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(-columns()), ArrowDown: () => step(columns()),
  };
  const PAGES = { p: "/", b: "/browse", r: "/review", t: "/tags", l: "/library", m: "/map" };
  const ON = {
    Photos: {
      w: () => {
        const why = one(".why", focused()?.closest("li") || document);
        if (why) why.open = !why.open;
      },
      s: () => {
        const id = focused()?.pathname.split("/").pop();
        if (id) location.assign(`/?like=${id}`);
      },
      f: () => toggle(one("#filters")),
      t: () => toggle(one("#facets")),
      o: () => {
        toggle(one("#sort"));
        one("#sort[open] [aria-current]")?.focus();
      },
      n: () => one("#narrower a")?.focus(),
      ...ARROWS,
    },
    Picture: {
      a: () => clickInRow("accept"),
      x: () => clickInRow("reject", "take"),
      u: undoLast,
      t: () => one("#new-tag").focus(),
      s: () => location.assign(`/?like=${one("#picture-figure").dataset.image}`),
      b: () => (one("[data-back]") ? one("[data-back]").click() : history.back()),
      ArrowUp: () => step(-1), ArrowDown: () => step(1),
    },
    Duplicates: {
      y: () => {
        const keep = focused() && one("[name=keep]", focused().closest("li") || document);
        if (!keep) return;
        keep.checked = true;
        keep.form.requestSubmit();
      },
      u: () => (one(".undo-keep", focused()) || one(".undo-keep"))?.click(),
      ...ARROWS,
    },
    Browse: {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(-1), ArrowDown: () => step(1),
    },
    Tags: {
      ArrowUp: () => step(-1), ArrowDown: () => step(1),
      ArrowRight: () => fold(true), ArrowLeft: () => fold(false),
    },
    Review: {
      ...ARROWS,
      x: () => focused()?.click(),
      h: () => {
        const question = one(".ask[data-heat]");
        if (question && !one(".heat")) showHeat(question.dataset.tag);
      },
    },
  };
  const EVERYWHERE = {
    "/": () => one("#q").select(),
    "?": () => keys.showModal(),
    g: () => (pageKeyTimer = setTimeout(() => (pageKeyTimer = 0), 1500)),
    j: () => step(1),
    k: () => step(-1),
  };

  document.addEventListener("toggle", (event) => { // the list of orders covers photos, which must not react to its clicks
    if (event.target.id === "sort" && one("#grid")) one("#grid").inert = event.target.open;
  }, true);
  document.addEventListener("click", (event) => {
    const orders = one("#sort[open]");
    if (orders && !orders.contains(event.target)) orders.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    if (event.target.closest?.("video") && event.key.startsWith("Arrow")) return; // arrow keys seek in it
    const typing = event.target.closest?.("input:not([type=checkbox], [type=file]), textarea, select");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    if (event.key === "Escape" && one("#sort[open]")) {
      toggle(one("#sort"));
      event.preventDefault();
      event.stopImmediatePropagation(); // the chosen photos stay chosen
      return;
    }
    const address = pageKeyTimer && PAGES[event.key];
    clearTimeout(pageKeyTimer);
    pageKeyTimer = 0;
    if (address) return void location.assign(address);
    const button = all("[data-key]").find((element) => element.dataset.key === event.key && !element.disabled);
    const moves = event.key.startsWith("Arrow") && !rows().length;
    const action = button ? () => event.repeat || button.click() : moves ? null : ON[page]?.[event.key] || EVERYWHERE[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener("keyup", (event) => {
    if (page === "Review" && event.key === "h") hideHeat();
  });

  window.visterm = { one, all, notify, fetchPart, putHtml, loadInto, focused, step, columns, dragAndZoom };
  activate(document.body);
})();
