// The page's script. Everything works without it; it adds keys and saves reloads.
"use strict";
(() => {
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const page = document.body.dataset.page;
  document.documentElement.classList.add("script");

  // ---- Messages: for eyes below the header, where it covers no button, and for screen readers --------------------------------------

  // What turns the direction of writing round, or is not seen, is shown as the pages show it
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const shown = (text) => text.replace(HIDDEN, "\ufffd");

  const said = one("#said");
  let silence;

  function tell(text) {
    if (!text) return;
    said.textContent = "";
    requestAnimationFrame(() => (said.textContent = text));
    clearTimeout(silence);
    silence = setTimeout(() => (said.textContent = ""), 5000);
  }

  // ---- Parts of pages, that the server renders and escapes ------------------------------------------------------

  class Busy extends Error {}

  async function part(address, options = {}) {
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
      const found = JSON.parse(text);
      message = found.message || found.error.message;
    } catch { /* not our JSON: the status has to do */ }
    throw new Error(message);
  }

  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }

  function put(place, html, inside = false) {
    const content = parsed(html);
    const added = [...content.children];
    if (one("details[open]", place)) one("details", content)?.setAttribute("open", ""); // what is open stays open
    if (inside) place.replaceChildren(content);
    else place.replaceWith(content);
    added.forEach(wake);
  }

  async function fill(element, address, inside) {
    try {
      put(element, await part(address), inside);
    } catch (error) {
      if (error instanceof Busy) setTimeout(() => element.isConnected && fill(element, address, inside), 3000);
      else tell(error.message);
    }
  }

  const within = (root, selector) => [...(root.matches?.(selector) ? [root] : []), ...all(selector, root)];

  const nearEnd = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      nearEnd.unobserve(entry.target);
      fill(entry.target, one("a", entry.target).href, false);
    }
  }, { rootMargin: "900px" });

  function wake(root) {
    within(root, "[data-load]").forEach((element) => fill(element, element.dataset.load, true));
    within(root, "[data-again]").forEach((element) =>
      setTimeout(() => element.isConnected && fill(element, element.dataset.again, false), element.dataset.after || 700));
    within(root, ".more").forEach((element) => nearEnd.observe(element));
    within(root, "[data-complete]").forEach(completing);
    within(root, "#map").forEach(movable);
    if (root === document.body) return; // messages of a page that just loaded are not news
    within(root, "[data-said]").forEach((element) => tell(element.dataset.said));
    within(root, "[data-focus]").slice(0, 1).forEach((element) => element.focus());
  }

  // What is folded is loaded when it is unfolded for the first time
  document.addEventListener("toggle", (event) => {
    const place = event.target.open && one(":scope > [data-open]", event.target);
    if (place) fill(place, place.dataset.open, false);
  }, true);

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const { into, inside, busy } = form.dataset;
    if (!into && !inside) return;
    event.preventDefault();
    if (busy) return;
    form.dataset.busy = "1";
    const body = new URLSearchParams(new FormData(form, event.submitter));
    const rowAt = rows().findIndex((row) => row.contains(document.activeElement));
    const wasTyping = document.activeElement.id;
    try {
      put(one(into || inside), await part(form.getAttribute("action"), { method: "POST", body }), Boolean(inside));
      document.dispatchEvent(new CustomEvent("visterm:done", { detail: { into: into || inside } }));
      if (into === "#picture-tags") {
        lastSaid = { tag: body.get("tag"), do: body.get("do") };
        if (wasTyping === "new-tag") one("#new-tag").focus();
        else focusOn(rows()[Math.min(Math.max(rowAt, 0), rows().length - 1)]);
      }
    } catch (error) {
      tell(error.message);
    } finally {
      delete form.dataset.busy;
    }
  });

  // ---- Completion of tags ----------------------------------------------------------------------------------------

  const PIECES = {
    words: /(^|[\s,;])(-?"?)([^\s,;"]*|(?<=")[^"]*)$/,
    list: /(^|,)(\s*)([^,]*)$/,
    tag: /^()()(.*)$/,
  };
  let lists = 0;

  function completing(input) {
    if (input.getAttribute("role") === "combobox") return;
    const kind = input.dataset.complete;
    const list = document.createElement("ul");
    list.id = `completions-${++lists}`;
    list.className = "completions";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Tags");
    list.hidden = true;
    input.after(list);
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false",
    })) input.setAttribute(name, value);
    let at = -1, waiting, asking;

    const close = () => {
      at = -1;
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };
    const choose = (option) => {
      const [whole, before, sign, typed] = input.value.match(PIECES[kind]) || [input.value, "", "", ""];
      const start = input.value.slice(0, input.value.length - whole.length);
      const tag = option.dataset.tag;
      if (kind === "words") {
        const plain = /^[^\s,;"-][^\s,;"]*$/.test(tag);
        const minus = sign.startsWith("-") ? "-" : "";
        input.value = `${start}${before}${minus}${plain ? tag : `"${tag.replaceAll('"', '""')}"`} `;
      } else if (kind === "list") input.value = `${start}${before}${before ? " " : ""}${tag}`;
      else input.value = tag;
      close();
      input.focus();
      if (input.closest("form.add")) input.form.requestSubmit();
    };
    const move = (step) => {
      const options = [...list.children];
      options[at]?.removeAttribute("aria-selected");
      at = (at + step + options.length + 1) % (options.length + 1);
      if (at === options.length) {
        at = -1;
        input.removeAttribute("aria-activedescendant");
        return;
      }
      options[at].setAttribute("aria-selected", "true");
      options[at].scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", options[at].id);
    };
    const show = async () => {
      const found = input.value.match(PIECES[kind]);
      if (!found || !found[3].trim()) return close();
      asking?.abort();
      asking = new AbortController();
      let tags;
      try {
        const answer = await fetch(`/api/v1/tags/complete?${new URLSearchParams({ prefix: found[3].trim(), k: 8 })}`,
          { signal: asking.signal });
        if (!answer.ok) return close();
        ({ tags } = await answer.json());
      } catch {
        return undefined; // another letter was typed meanwhile, or the service is gone: the search works without completion
      }
      if (document.activeElement !== input) return close();
      list.replaceChildren(...tags.map(({ tag, images }, number) => {
        const option = document.createElement("li");
        option.id = `${list.id}-${number}`;
        option.dataset.tag = tag;
        option.setAttribute("role", "option");
        const count = document.createElement("small");
        count.textContent = images ? images.toLocaleString("en") : "no photos yet";
        option.classList.toggle("without", !images);
        option.append(shown(tag), " ", count);
        option.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          choose(option);
        });
        return option;
      }));
      at = -1;
      list.hidden = !tags.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      return undefined;
    };
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(show, 90);
    });
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (list.hidden) return;
      if (event.key === "ArrowDown") move(1);
      else if (event.key === "ArrowUp") move(-1);
      else if (event.key === "Enter" && at >= 0) choose(list.children[at]);
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  // ---- Heat: where in the picture a tag comes from ---------------------------------------------------------------

  let resting;

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
      if (caption && heat.isConnected) caption.textContent = `Where “${shown(tag)}” comes from, by ${caption.dataset.by}`;
    });
    heat.addEventListener("error", () => heat.remove());
    one(".frame", figure).append(heat);
  }

  function hideHeat() {
    clearTimeout(resting);
    all(".heat").forEach((heat) => heat.remove());
    const caption = one("#heat-said");
    if (caption) caption.textContent = "";
  }

  function heatOnRest(start, end) {
    document.addEventListener(start, (event) => {
      const row = event.target.closest?.("#picture-tags [data-heat]");
      if (!row || one(".heat")?.dataset.tag === row.dataset.tag) return;
      clearTimeout(resting);
      resting = setTimeout(() => showHeat(row.dataset.tag), 220);
    });
    document.addEventListener(end, (event) => {
      const row = event.target.closest?.("#picture-tags [data-heat]");
      if (row && !row.contains(event.relatedTarget)) hideHeat();
    });
  }
  heatOnRest("pointerover", "pointerout");
  heatOnRest("focusin", "focusout");

  // ---- A photo in full size, and the photos beside it ------------------------------------------------------------

  const zoom = one("#zoom");
  if (zoom) {
    const place = one("[role=region]", zoom);
    const open = (event) => {
      event.preventDefault();
      const photo = new Image();
      photo.alt = one("#picture-figure img").alt;
      photo.src = one("[data-zoom]").href;
      photo.addEventListener("error", () => tell("The photo can't be shown in full size: its file is gone or damaged."));
      place.replaceChildren(photo);
      zoom.showModal();
      place.focus();
    };
    all("[data-zoom], .stage .frame > img").forEach((element) => element.addEventListener("click", open));
    place.addEventListener("click", () => zoom.close());
    zoom.addEventListener("keydown", (event) => event.key === "z" && zoom.close());

    const stage = one(".stage");
    let from = null;
    stage.addEventListener("touchstart", ({ touches }) => (from = touches.length === 1 ? touches[0] : null), { passive: true });
    stage.addEventListener("touchend", ({ changedTouches }) => {
      if (!from) return;
      const [across, down] = [changedTouches[0].clientX - from.clientX, changedTouches[0].clientY - from.clientY];
      from = null;
      if (Math.abs(across) > 50 && Math.abs(across) > 2 * Math.abs(down)) one(`[rel=${across < 0 ? "next" : "prev"}]`)?.click();
    });
  }

  // ---- A picture that is dropped ---------------------------------------------------------------------------------

  const byPicture = one("#by-picture");
  if (byPicture) {
    const file = one("input[type=file]", byPicture);
    let ours = false;
    file.addEventListener("change", () => file.files.length && byPicture.requestSubmit());
    document.addEventListener("dragstart", () => (ours = true));
    document.addEventListener("dragend", () => (ours = false));
    const dropping = (event) => !ours && event.dataTransfer?.types.includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!dropping(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!dropping(event)) return;
      event.preventDefault();
      const picture = [...event.dataTransfer.files].find((dropped) => dropped.type.startsWith("image/"));
      if (!picture) return tell("That isn't an image file.");
      const files = new DataTransfer();
      files.items.add(picture);
      file.files = files.files;
      byPicture.requestSubmit();
    });
  }

  // ---- The map of the tags ---------------------------------------------------------------------------------------

  function movable(map) {
    const SIDE = 1000, ROOMS = [1, 2, 4, 8, 16, 32, 64], fingers = new Map();
    let zoom = 1, x = 0, y = 0, moved = false;

    const draw = () => {
      const seen = SIDE / zoom;
      x = Math.min(Math.max(x, -seen / 2), SIDE - seen / 2);
      y = Math.min(Math.max(y, -seen / 2), SIDE - seen / 2);
      map.setAttribute("viewBox", `${x} ${y} ${seen} ${seen}`);
      map.style.setProperty("--zoom", 1 / unit()); // so that names are as large as the page's text at any zoom
      map.dataset.at = ROOMS.filter((room) => room <= 4.01 / unit()).join(" ");
    };
    const nearer = (factor, at = { x: x + SIDE / zoom / 2, y: y + SIDE / zoom / 2 }) => {
      const next = Math.min(Math.max(zoom * factor, 1), 32);
      x = at.x - ((at.x - x) * zoom) / next;
      y = at.y - ((at.y - y) * zoom) / next;
      zoom = next;
      if (zoom === 1) x = y = 0;
      draw();
    };
    const onMap = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    const unit = () => SIDE / zoom / Math.min(map.clientWidth, map.clientHeight);

    map.addEventListener("wheel", (event) => {
      event.preventDefault();
      nearer(event.deltaY < 0 ? 1.2 : 1 / 1.2, onMap(event));
    }, { passive: false });
    map.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event);
      moved = false;
    });
    map.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const others = [...fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
      if (others.length) {
        const apart = (finger) => Math.hypot(finger.clientX - others[0].clientX, finger.clientY - others[0].clientY);
        nearer(apart(event) / Math.max(apart(before), 1), onMap(others[0]));
        moved = true;
      } else if (moved || Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY) > 4) {
        moved = true;
        if (!map.hasPointerCapture(event.pointerId)) map.setPointerCapture(event.pointerId);
        x -= (event.clientX - before.clientX) * unit();
        y -= (event.clientY - before.clientY) * unit();
        draw();
      } else return;
      fingers.set(event.pointerId, event);
    });
    new ResizeObserver(draw).observe(map);
    for (const end of ["pointerup", "pointercancel", "pointerleave"])
      map.addEventListener(end, (event) => fingers.delete(event.pointerId));
    map.addEventListener("click", (event) => moved && event.preventDefault(), true);
    map.addEventListener("dragstart", (event) => event.preventDefault());
    map.addEventListener("keydown", (event) => {
      const step = SIDE / zoom / 8;
      const does = {
        ArrowLeft: () => (x -= step), ArrowRight: () => (x += step),
        ArrowUp: () => (y -= step), ArrowDown: () => (y += step),
        "+": () => nearer(1.5), "=": () => nearer(1.5), "-": () => nearer(1 / 1.5), 0: () => nearer(0),
      }[event.key];
      if (!does || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      does();
      draw();
    });
    const buttons = one(".map-buttons");
    if (buttons) {
      buttons.hidden = false;
      buttons.addEventListener("click", (event) => {
        const way = event.target.dataset?.zoom;
        if (way !== undefined) nearer({ 1: 1.6, "-1": 1 / 1.6, 0: 0 }[way]);
      });
    }
    draw();
  }

  // ---- Keys ------------------------------------------------------------------------------------------------------

  const keys = one("#keys");
  const showKeys = one("#show-keys");
  showKeys.hidden = false;
  showKeys.addEventListener("click", () => keys.showModal());
  let lastSaid = null;
  let going = 0; // the timer of a "g" that waits for the next key

  const rows = () => all("[data-item], [data-row]").filter((row) => row.checkVisibility());
  const inRow = (row) => (row?.matches("tr") ? one("a", row) : row);
  const focusOn = (row) => inRow(row)?.focus();
  const focused = () => rows().find((row) => row.contains(document.activeElement));

  function step(by) {
    const found = rows();
    if (!found.length) return;
    const at = found.indexOf(focused());
    focusOn(found[at < 0 ? 0 : Math.min(Math.max(at + by, 0), found.length - 1)]);
  }

  function columns() {
    const found = rows();
    const next = found.findIndex((row) => row.getBoundingClientRect().top > found[0].getBoundingClientRect().top + 4);
    return next > 0 ? next : found.length;
  }

  function sayOfRow(...kinds) {
    const row = focused() || one(".predicted [data-row]");
    const button = row && kinds.map((kind) => one(`button.${kind}`, row)).find(Boolean);
    button?.click();
    return Boolean(button);
  }

  async function takeBack() {
    const inverse = lastSaid && { accept: "back", reject: "back", back: null, give: "take", take: "give" }[lastSaid.do];
    if (!inverse) return void sayOfRow("back");
    const body = new URLSearchParams({ tag: lastSaid.tag, do: inverse });
    lastSaid = null;
    try {
      put(one("#picture-tags"), await part(`${location.pathname}/tags`, { method: "POST", body }));
      focusOn(rows().find((row) => row.dataset.tag === body.get("tag")));
    } catch (error) {
      tell(error.message);
    }
  }

  function toggle(details) {
    if (!details) return;
    details.open = !details.open;
    (details.open && one("input:not([type=hidden])", details) || one("summary", details)).focus();
  }

  function fold(open) {
    const row = focused()?.closest("li");
    const below = row && one(":scope > details", row);
    if (open || below?.open) {
      if (below) below.open = open;
      return;
    }
    const around = row?.parentElement.closest("details");
    if (!around) return;
    around.open = false;
    one("a", around.parentElement).focus();
  }

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
      ArrowLeft: () => step(-1), ArrowRight: () => step(1),
      ArrowUp: () => step(-columns()), ArrowDown: () => step(columns()),
    },
    Picture: {
      a: () => sayOfRow("accept"),
      x: () => sayOfRow("reject", "take"),
      u: takeBack,
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
      ArrowLeft: () => step(-1), ArrowRight: () => step(1),
      ArrowUp: () => step(-columns()), ArrowDown: () => step(columns()),
    },
    Browse: {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(-1), ArrowDown: () => step(1),
    },
    Tags: {
      ArrowUp: () => step(-1), ArrowDown: () => step(1),
      ArrowRight: () => fold(true), ArrowLeft: () => fold(false),
    },
    Review: {
      h: () => {
        const question = one(".ask[data-heat]");
        if (question && !one(".heat")) showHeat(question.dataset.tag);
      },
    },
  };
  const EVERYWHERE = {
    "/": () => one("#q").select(),
    "?": () => keys.showModal(),
    g: () => (going = setTimeout(() => (going = 0), 1500)),
    j: () => step(1),
    k: () => step(-1),
  };

  document.addEventListener("toggle", (event) => { // the list of orders lies over the photos: none is opened through it
    if (event.target.id === "sort" && one("#grid")) one("#grid").inert = event.target.open;
  }, true);
  document.addEventListener("click", (event) => {
    const orders = one("#sort[open]");
    if (orders && !orders.contains(event.target)) orders.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    if (event.target.closest?.("video") && event.key.startsWith("Arrow")) return; // they wind it
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
    const goes = going && PAGES[event.key];
    clearTimeout(going);
    going = 0;
    if (goes) return void location.assign(goes);
    const button = all("[data-key]").find((element) => element.dataset.key === event.key && !element.disabled);
    const moves = event.key.startsWith("Arrow") && !rows().length;
    const does = button ? () => event.repeat || button.click() : moves ? null : ON[page]?.[event.key] || EVERYWHERE[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
  document.addEventListener("keyup", (event) => {
    if (page === "Review" && event.key === "h") hideHeat();
  });

  window.visterm = { one, all, tell, part, put, fill, focused, step, columns };
  wake(document.body);
})();
