// A Quasar table whose cells stay in the document when rows change.
//
// NiceGUI makes a new component of a slot template each time the table is drawn: the browser then replaces every button
// and link of the table, the focused one as well, and a click whose press and release are on two different buttons is
// lost. The templates of this component are compiled once, so that a change of rows only changes texts.
const ACTIONS = `<q-btn v-for="action in props.row.actions" :key="action" flat dense no-caps color="primary" :label="action"
  :aria-label="action + ' ' + props.row.row_key" @click.stop="$emit('act', action, props.row.row_key)" />`;

export default {
  template: `
    <q-table ref="qRef">
      <!-- A button, so that the keyboard reaches it; the click goes on to the header cell, which sorts. -->
      <template #header-cell="props">
        <q-th :props="props" :aria-sort="sortOf(props.col)">
          <button v-if="props.col.sortable" type="button" class="h-sort">{{ props.col.label }}</button>
          <span v-else :class="props.col.name === 'actions' ? 'h-hidden' : ''">{{ props.col.label }}</span>
        </q-th>
      </template>
      <template #body-cell="props">
        <q-td :props="props">
          <template v-if="props.col.name === 'actions'">${ACTIONS}</template>
          <a v-else-if="isLink(props)" class="h-link" :href="props.row.href">{{ props.value }}</a>
          <template v-else>{{ props.value }}</template>
        </q-td>
      </template>
      <!-- One row on a small screen: every column that has a value on a line of its own. -->
      <template #item="props">
        <div class="h-item">
          <div v-for="col in props.cols" :key="col.name" class="h-item-line"
            v-show="col.name === 'actions' || (col.value !== '' && col.value !== null)">
            <template v-if="col.name === 'actions'"><span></span><div>${ACTIONS}</div></template>
            <template v-else>
              <span class="h-soft">{{ col.label }}</span>
              <a v-if="isLink({ row: props.row, col })" class="h-link" :href="props.row.href">{{ col.value }}</a>
              <span v-else>{{ col.value }}</span>
            </template>
          </div>
        </div>
      </template>
      <template #no-data><span class="h-soft" style="padding: 6px 0">{{ emptyText }}</span></template>
    </q-table>
  `,
  props: { linkColumn: String, emptyText: String },
  emits: ["act"],
  methods: {
    isLink({ row, col }) {
      return col.name === this.linkColumn && !!row.href;
    },
    sortOf(col) {
      const classes = String(col.__thClass);
      if (!col.sortable) return undefined;
      if (!classes.includes("sorted")) return "none";
      return classes.includes("sort-desc") ? "descending" : "ascending";
    },
  },
};
