// The same by Node: `lookup` is the C library's, `resolve` is by c-ares.
const dns = require('dns').promises;
const [way, ...names] = process.argv.slice(2);
const both = {
  lookup: name => dns.lookup(name, { all: true }).then(all => all.map(one => one.address)),
  resolve: async name => {
    const asked = await Promise.allSettled([dns.resolve4(name), dns.resolve6(name)]);
    const found = asked.filter(one => one.value).flatMap(one => one.value);
    if (!found.length) throw asked[0].reason;
    return found;
  },
};
(async () => {
  for (const name of names) {
    const begun = Date.now();
    const [code, found] = await both[way](name).then(all => ['0', all], error => [error.code, []]);
    console.log([name, code, Date.now() - begun, ...found].join(' '));
  }
})();
