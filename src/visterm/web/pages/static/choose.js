// Choosing several photos of a grid: by check boxes, by shift and click, by keys; without it check boxes and buttons still work.
"use strict";
(() => {
  const { one, all, fill, focused, step, columns } = window.visterm;
  const boxes = () => all(".choose").filter((box) => box.checkVisibility());
  const chosen = () => all(".choose:checked");
  const boxOf = (link) => link && one(".choose", link.closest("li"));
  const none = one("#choose-none");
  const bar = one("#chosen-bar");
  let from = null; // where a range begins
  let reach = null; // where it ended last
  none.hidden = false;

  function count() {
    const n = chosen().length;
    one("#n-chosen").textContent = n === 1 ? "1 photo" : `${n.toLocaleString("en")} photos`;
  }

  function range(a, b, checked) {
    const found = boxes();
    const [first, last] = [found.indexOf(a), found.indexOf(b)].sort((one, other) => one - other);
    if (first < 0) return;
    found.slice(first, last + 1).forEach((box) => (box.checked = checked));
  }

  function chooseNone() {
    chosen().forEach((box) => (box.checked = false));
    one("#step").replaceChildren();
    from = reach = null;
    count();
  }

  function chooseOne(box) {
    box.checked = !box.checked;
    from = box;
    reach = null;
    count();
  }

  function extend(by) {
    const start = focused();
    step(by);
    const [before, box] = [boxOf(start), boxOf(focused())];
    if (!box) return;
    if (!reach) from = before || box; // a new range begins where the focus was
    else range(from, reach, false);
    reach = box;
    range(from, reach, true);
    count();
  }

  document.addEventListener("click", (event) => {
    const box = event.target.closest?.(".choose");
    if (!box) return;
    if (event.shiftKey && from?.isConnected) range(from, box, box.checked);
    from = box;
    reach = null;
    count();
  });
  none.addEventListener("click", chooseNone);

  // ---- Tags of all of them ----------------------------------------------------------------------------------------

  const tag = one("#chosen-tag");
  let enter = "give"; // what Enter does in the field: "r" makes it remove

  function typeTag(what) {
    enter = what;
    tag.placeholder = what === "give" ? "Add a tag" : "Remove a tag";
    tag.focus();
    tag.select();
  }

  tag.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.defaultPrevented) return;
    event.preventDefault();
    one(`[name=do][value=${enter}]`, bar).click();
  });

  // What was said shows on the photos at once; their tags are counted anew
  document.addEventListener("visterm:done", (event) => {
    if (event.detail.into !== "#step") return;
    const { do: did, images } = one("#step").dataset;
    for (const number of images.split(" ")) {
      for (const box of all(`.choose[value="${number}"]`)) {
        const hit = box.closest("li");
        hit.classList.toggle("is-wrong", did === "wrong");
        const mark = one(".mark", hit);
        if (did === "undo") one(".mark.now", hit)?.remove();
        else if (!mark) {
          const made = document.createElement("span");
          made.className = "mark now";
          made.title = "Reviewed";
          made.textContent = "✓";
          one(".picture-link", hit).append(made);
        }
      }
    }
    if (did === "give" || did === "take") tag.value = "";
    if (bar.contains(document.activeElement) || document.activeElement === document.body) {
      const hit = chosen()[0]?.closest("li"); // back to the photos, where keys act on all that are chosen
      if (hit) one("a", hit).focus({ preventScroll: true });
    }
    const facets = one("#facets");
    const list = facets && one(":scope > :not(summary)", facets);
    if (!list || list.dataset.open) return; // not unfolded yet: it will be counted then
    const place = document.createElement("div");
    place.dataset.open = facets.dataset.counts;
    list.replaceWith(place);
    if (facets.open) fill(place, place.dataset.open, false);
  });

  // ---- Keys: before those of the page, as some mean something else while photos are chosen ------------------------

  const click = (selector) => {
    const button = one(selector, bar);
    button?.click();
    return Boolean(button);
  };
  const WITH_CHOSEN = {
    a: () => typeTag("give") || true,
    r: () => typeTag("take") || true,
    y: () => click("[value=right]"),
    n: () => click("[value=wrong]"),
    u: () => click("#undo-step"),
    Escape: () => chooseNone() || true,
  };

  document.addEventListener("keydown", (event) => {
    if (event.altKey || one("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=checkbox]), textarea, select")) return;
    const { key } = event;
    let done = false;
    if (event.ctrlKey || event.metaKey) {
      if (key !== "a" || !boxes().length) return;
      boxes().forEach((box) => (box.checked = true));
      count();
      done = true;
    } else if (event.shiftKey && key.startsWith("Arrow") && boxOf(focused())) {
      extend({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() }[key]);
      done = true;
    } else if (key === "x" && boxOf(focused())) {
      chooseOne(boxOf(focused()));
      done = true;
    } else if (WITH_CHOSEN[key] && bar.checkVisibility()) done = WITH_CHOSEN[key]();
    if (!done) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  count();
})();
