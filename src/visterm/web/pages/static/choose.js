// Choosing several photos of a grid by Shift and click or by keys; without this script, check boxes and buttons work.
"use strict";
(() => {
  const { one, all, loadInto, focused, step, columns } = window.visterm;
  const findBoxes = () => all(".choose").filter((box) => box.checkVisibility());
  const chosenBoxes = () => all(".choose:checked");
  const boxOf = (link) => link && one(".choose", link.closest("li"));
  const noneButton = one("#choose-none");
  const bar = one("#chosen-bar");
  let rangeStart = null; // first box of a range
  let rangeEnd = null; // its last box
  noneButton.hidden = false;

  function count() {
    const n = chosenBoxes().length;
    one("#n-chosen").textContent = n === 1 ? "1 photo" : `${n.toLocaleString("en")} photos`;
  }

  function setRange(a, b, checked) {
    const boxes = findBoxes();
    const [first, last] = [boxes.indexOf(a), boxes.indexOf(b)].sort((x, y) => x - y);
    if (first < 0) return;
    boxes.slice(first, last + 1).forEach((box) => (box.checked = checked));
  }

  function chooseNone() {
    chosenBoxes().forEach((box) => (box.checked = false));
    one("#step").replaceChildren();
    rangeStart = rangeEnd = null;
    count();
  }

  function chooseOne(box) {
    box.checked = !box.checked;
    rangeStart = box;
    rangeEnd = null;
    count();
  }

  function extend(by) {
    const start = focused();
    step(by);
    const [before, box] = [boxOf(start), boxOf(focused())];
    if (!box) return;
    if (!rangeEnd) rangeStart = before || box; // a new range begins where the focus was
    else setRange(rangeStart, rangeEnd, false);
    rangeEnd = box;
    setRange(rangeStart, rangeEnd, true);
    count();
  }

  document.addEventListener("click", (event) => {
    const box = event.target.closest?.(".choose");
    if (!box) return;
    if (event.shiftKey && rangeStart?.isConnected) setRange(rangeStart, box, box.checked);
    rangeStart = box;
    rangeEnd = null;
    count();
  });
  noneButton.addEventListener("click", chooseNone);

  // ---- Tags of chosen photos---------------------------------------------------------------------------------------

  const tag = one("#chosen-tag");
  let enterAction = "give"; // what Enter does in the tag field: add a tag, or remove it after "r"

  function focusTagField(action) {
    enterAction = action;
    tag.placeholder = action === "give" ? "Add a tag" : "Remove a tag";
    tag.focus();
    tag.select();
  }

  tag.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.defaultPrevented) return;
    event.preventDefault();
    one(`[name=do][value=${enterAction}]`, bar).click();
  });

  // Show the change on the photos at once, and count their tags again
  document.addEventListener("visterm:done", (event) => {
    if (event.detail.into !== "#step") return;
    const { do: action, images } = one("#step").dataset;
    for (const number of images.split(" ")) {
      for (const box of all(`.choose[value="${number}"]`)) {
        const hit = box.closest("li");
        hit.classList.toggle("is-wrong", action === "wrong");
        const mark = one(".mark", hit);
        if (action === "undo") one(".mark.now", hit)?.remove();
        else if (!mark) {
          const newMark = document.createElement("span");
          newMark.className = "mark now";
          newMark.title = "Reviewed";
          newMark.textContent = "✓";
          one(".picture-link", hit).append(newMark);
        }
      }
    }
    if (action === "give" || action === "take") tag.value = "";
    if (bar.contains(document.activeElement) || document.activeElement === document.body) {
      const hit = chosenBoxes()[0]?.closest("li"); // back to the photos, where keys act on all chosen ones
      if (hit) one("a", hit).focus({ preventScroll: true });
    }
    const facets = one("#facets");
    const list = facets && one(":scope > :not(summary)", facets);
    if (!list || list.dataset.open) return; // not opened yet: the tags are counted when it is
    const placeholder = document.createElement("div");
    placeholder.dataset.open = facets.dataset.counts;
    list.replaceWith(placeholder);
    if (facets.open) loadInto(placeholder, placeholder.dataset.open, false);
  });

  // ---- Keys: handled before those of the page, as some have another meaning while photos are chosen-----------------------

  const clickButton = (selector) => {
    const button = one(selector, bar);
    button?.click();
    return Boolean(button);
  };
  const KEYS_WITH_CHOSEN = {
    a: () => focusTagField("give") || true,
    r: () => focusTagField("take") || true,
    y: () => clickButton("[value=right]"),
    n: () => clickButton("[value=wrong]"),
    d: () => clickButton("[value=zip]"),
    u: () => clickButton("#undo-step"),
    Escape: () => chooseNone() || true,
  };

  document.addEventListener("keydown", (event) => {
    if (event.altKey || one("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=checkbox]), textarea, select")) return;
    const { key } = event;
    let isDone = false;
    if (event.ctrlKey || event.metaKey) {
      if (key !== "a" || !findBoxes().length) return;
      findBoxes().forEach((box) => (box.checked = true));
      count();
      isDone = true;
    } else if (event.shiftKey && key.startsWith("Arrow") && boxOf(focused())) {
      extend({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() }[key]);
      isDone = true;
    } else if (key === "x" && boxOf(focused())) {
      chooseOne(boxOf(focused()));
      isDone = true;
    } else if (KEYS_WITH_CHOSEN[key] && bar.checkVisibility()) isDone = KEYS_WITH_CHOSEN[key]();
    if (!isDone) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  count();
})();
