// Stores keys that are pressed before the page's scripts have loaded, and replays them afterwards.
"use strict";
(() => {
  const FIELD = "input:not([type=checkbox], [type=file]), textarea, select";
  const earlyKeys = [];

  const keep = (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || !/^(.|Arrow.*|Enter|Escape)$/u.test(key)) return;
    // Keys that the browser handles itself are left to it, unless other keys wait already
    if (!earlyKeys.length && (target.matches(FIELD) || key === " " || key === "Enter" && target !== document.body)) return;
    earlyKeys.push(event);
    event.preventDefault();
    event.stopImmediatePropagation();
  };

  const play = ({ key, code, shiftKey, repeat }) => {
    const target = document.activeElement || document.body;
    const options = { key, code, shiftKey, repeat, bubbles: true, cancelable: true };
    const isUnhandled = target.dispatchEvent(new KeyboardEvent("keydown", options));
    target.dispatchEvent(new KeyboardEvent("keyup", options));
    if (!isUnhandled) return;
    // The browser's actions for keys, which it omits for keys that a script sends
    if (!target.matches(FIELD)) key === "Enter" && target !== document.body && target.click();
    else if (key === "Enter") target.form?.requestSubmit();
    else if (key.length === 1) document.execCommand("insertText", false, key);
  };

  addEventListener("keydown", keep, true);
  document.addEventListener("DOMContentLoaded", () => { // after all deferred scripts
    removeEventListener("keydown", keep, true);
    earlyKeys.forEach(play);
    document.documentElement.dataset.ready = "";
  });
})();
