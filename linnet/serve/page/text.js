// The text of a session as tokens that can be picked with the pointer or the keyboard.
//
// A token that ends inside a character has the text "": it is shown together with the one that completes the
// character, and picking that picks the first of them.

const SHOWN = {"\n": "new line", " ": "space", "\t": "tab"};

export const quoted = (text) => SHOWN[text] ? `a ${SHOWN[text]}` : `“${text.replaceAll("\n", "↵")}”`;
export const percent = (logprob) => {
  const chance = 100 * Math.exp(logprob);
  return chance < 1 ? "< 1\u00a0%" : `${Math.round(chance)}\u00a0%`;
};

export class Text {
  constructor(root, pick) {
    this.root = root;
    this.pick = pick;  // called with the position and the element
    this.clear();
    root.addEventListener("click", (event) => {
      const element = event.target.closest("[data-position]");
      if (element && !String(getSelection())) this.choose(element);
    });
    root.addEventListener("keydown", (event) => this.key(event));
  }

  clear() {
    this.root.replaceChildren();
    this.tokens = new Map();  // position -> token of the API, with its logprob and alternatives if they are known
    this.open = null;  // element whose character is not complete
    this.current = null;
  }

  // prefix: number of tokens at position 0 that begin a text and have none themselves.
  push(token, prefix = 0) {
    if (token.position === null) {  // text that was held back
      if (this.root.lastElementChild) this.write(this.root.lastElementChild, token.text);
      return;
    }
    this.tokens.set(token.position, token);
    let element = this.open;
    if (!element) {
      element = document.createElement("span");
      element.dataset.position = token.position;
      element.setAttribute("role", "button");
      element.tabIndex = -1;
      this.root.append(element);
      if (!this.current) this.focusable(element);
    }
    element.className = token.sampled === false ? "given" : "";
    this.write(element, token.text);
    this.open = token.text === "" && token.position >= prefix ? element : null;
    if (token.position < prefix) element.className = "begin";
    if (token.logprob !== null && token.logprob !== undefined) element.title = percent(token.logprob);
  }

  write(element, text) {
    element.textContent += text;
    element.classList.toggle("break", element.textContent === "\n");
    element.setAttribute("aria-label", quoted(element.textContent).replace(/^“|”$/g, ""));
  }

  // Remove the tokens from a position on.
  cut(position) {
    for (const element of [...this.root.children].reverse()) {
      if (Number(element.dataset.position) < position) break;
      if (element === this.current) this.current = null;
      element.remove();
    }
    for (const known of this.tokens.keys()) if (known >= position) this.tokens.delete(known);
    this.open = null;
    if (!this.current && this.root.firstElementChild) this.focusable(this.root.firstElementChild);
  }

  choose(element) {
    this.focusable(element);
    element.focus();
    this.pick(Number(element.dataset.position), element);
  }

  focusable(element) {
    if (this.current) this.current.tabIndex = -1;
    this.current = element;
    element.tabIndex = 0;
  }

  key(event) {
    const element = event.target.closest("[data-position]");
    if (!element || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(element);
      return;
    }
    const other = {
      ArrowLeft: () => element.previousElementSibling, ArrowRight: () => element.nextElementSibling,
      Home: () => this.root.firstElementChild, End: () => this.root.lastElementChild,
      ArrowUp: () => line(element, "previousElementSibling"), ArrowDown: () => line(element, "nextElementSibling"),
    }[event.key];
    if (!other) return;
    event.preventDefault();
    const next = other();
    if (next) {
      this.focusable(next);
      next.focus();
    }
  }
}

// Return the element of the next or previous line that is closest in the horizontal direction.
function line(element, step) {
  const middle = (one) => one.offsetLeft + one.offsetWidth / 2;
  let next = element[step];
  while (next && next.offsetTop === element.offsetTop) next = next[step];
  let best = next;
  for (let one = next; one && one.offsetTop === next.offsetTop; one = one[step]) {
    if (Math.abs(middle(one) - middle(element)) < Math.abs(middle(best) - middle(element))) best = one;
  }
  return best;
}
