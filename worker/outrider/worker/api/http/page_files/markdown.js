// The Markdown that models write most, as elements: paragraphs, headings, lists, code, bold, italics.
// All else is text; nothing of a model is ever read as HTML.

const FENCE = /^\s*```(.*)$/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)(?:[-*+]|(\d+)[.)])\s+(.*)$/;
const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|(?<![\w*])\*(?!\s)([^*\n]+?)\*(?!\w)/;

function made(name, className, ...content) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

function inline(text) {
  const parts = [];
  for (let rest = text; rest; ) {
    const match = INLINE.exec(rest);
    if (!match) return [...parts, rest];
    if (match.index) parts.push(rest.slice(0, match.index));
    const [whole, , code, bold, italic] = match;
    if (code !== undefined) parts.push(made("code", "", code));
    else if (bold !== undefined) parts.push(made("strong", "", ...inline(bold)));
    else parts.push(made("em", "", ...inline(italic)));
    rest = rest.slice(match.index + whole.length);
  }
  return parts;
}

function codeBlock(language, lines) {
  const code = made("code", "", lines.join("\n"));
  const copy = made("button", "copy", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // without a secure origin there is no clipboard
      copy.textContent = "Selected";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  const bar = made("div", "bar", made("span", "", language), copy);
  return made("div", "code", bar, made("pre", "", code));
}

// Blocks of the text, which may end anywhere: an answer is shown while it grows.
export function blocks(text) {
  const found = [];
  const lines = text.split("\n");
  let paragraph = [];
  let list = null;
  const close = () => {
    if (paragraph.length) found.push(made("p", "", ...inline(paragraph.join("\n"))));
    paragraph = [];
    list = null;
  };
  for (let at = 0; at < lines.length; at++) {
    const [fence, heading, item] = [FENCE, HEADING, ITEM].map((kind) => kind.exec(lines[at]));
    if (fence) {
      close();
      const end = lines.findIndex((line, n) => n > at && /^\s*```\s*$/.test(line));
      const last = end < 0 ? lines.length : end;
      found.push(codeBlock(fence[1].trim(), lines.slice(at + 1, last)));
      at = last;
    } else if (heading) {
      close();
      found.push(made(`h${Math.min(heading[1].length + 1, 6)}`, "", ...inline(heading[2])));
    } else if (item) {
      const kind = item[2] === undefined ? "UL" : "OL";
      if (list?.tagName !== kind) {
        close();
        list = made(kind, "");
        if (kind === "OL") list.start = Number(item[2]);
        found.push(list);
      }
      const entry = made("li", "", ...inline(item[3]));
      if (item[1].length > 1) entry.className = "inner";
      list.append(entry);
    } else if (!lines[at].trim()) {
      const next = ITEM.exec(lines[at + 1] ?? "");
      if (!(list && next)) close();
    } else if (list && /^\s+\S/.test(lines[at])) {
      list.lastChild.append(" ", ...inline(lines[at].trim()));
    } else {
      if (list) close();
      paragraph.push(lines[at]);
    }
  }
  close();
  return found;
}
