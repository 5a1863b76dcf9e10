// A Worker for pages that are opened from a folder, where browsers allow none: its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, next) => before.then(() => this.load(inside, next)), Promise.resolve());
      this.inside = inside;
      this.load(inside, address).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }

    load(inside, address) {
      return new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, document.baseURI).href;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      if (this.ready) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    set onmessage(listener) {
      this.addEventListener("message", listener);
    }
  };
}
