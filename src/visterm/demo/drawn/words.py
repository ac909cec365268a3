"""How people write each true tag: plural, synonyms, misspellings, German and French; and the way back."""

from __future__ import annotations

from dataclasses import dataclass

_TABLE = """
aeroplane | aeroplanes | airplane; plane | areoplane | Flugzeug | avion
animal | animals | beast | animel | Tier | animal
antenna | antennas | aerial | antena | Antenne | antenne
antlers | | | antlars | Geweih | bois de cerf
arm | arms | | | Arm | bras
autumn | | fall | autum | Herbst | automne
balloon | balloons | hot-air balloon | baloon | Ballon | montgolfière
barn | barns | | barne | Scheune | grange
basket | baskets | | baskett | Korb | panier
beach | beaches | seaside; shore | beech | Strand | plage
beak | beaks | bill | | Schnabel | bec
bicycle | bicycles | bike | bycicle | Fahrrad | vélo
birch | birches | | brich | Birke | bouleau
bird | birds | | brid | Vogel | oiseau
blade | blades | | | Mühlenflügel | pale
blue | | | bleu ciel; blu | blau | bleu
boat | boats | | baot | Boot | bateau
branch | branches | twig | brance | Ast | branche
bridge | bridges | | brigde | Brücke | pont
building | buildings | | bulding | Gebäude | bâtiment
bus | buses | coach | buss | Omnibus | autobus
butterfly | butterflies | | buterfly | Schmetterling | papillon
cabin | cabins | | cabbin | Kabine | cabine
cactus | cacti | | cactuss | Kaktus | cactus
camel | camels | | cammel | Kamel | chameau
cap | caps | | | Pilzhut | chapeau de champignon
car | cars | automobile; auto | carr | Pkw | voiture
castle | castles | fortress | casle | Burg | château
cat | cats | kitty | catt | Katze | chat
chimney | chimneys | | chimny | Schornstein | cheminée
church | churches | chapel | chruch | Kirche | église
clock | clocks | | clok | Uhr | horloge
cloud | clouds | | clowd | Wolke | nuage
cow | cows | cattle | | Kuh | vache
cross | crosses | | | Kreuz | croix
daisy | daisies | | daisey | Gänseblümchen | pâquerette
deer | | | dear | Hirsch | cerf
desert | deserts | | dessert | Wüste | désert
dog | dogs | doggy | dogg | Hund | chien
door | doors | | dooor | Tür | porte
duck | ducks | | duk | Ente | canard
ear | ears | | | Ohr | oreille
elephant | elephants | | elefant; elephent | Elefant | éléphant
field | fields | | feild | Feld | champ
fin | fins | | | Flosse | nageoire
fish | fishes | | fisch | Fisch | poisson
flag | flags | | flagg | Flagge | drapeau
flower | flowers | blossom; bloom | flowr | Blume | fleur
fog | | mist; haze | fogg | Nebel | brouillard
forest | forests | woods; woodland | forrest | Wald | forêt
fox | foxes | | | Fuchs | renard
funnel | funnels | smokestack | funel | Schlot | cheminée de bateau
giraffe | giraffes | | girafe; girraffe | Giraffe | girafe
grass | | meadow; lawn | gras | Wiese | herbe
gull | gulls | seagull | segull | Möwe | mouette
handlebar | handlebars | | handelbar | Lenker | guidon
hat | hats | | hatt | Hut | chapeau
head | heads | | haed | Kopf | tête
headlight | headlights | headlamp | hedlight | Scheinwerfer | phare avant
hill | hills | | hil | Hügel | colline
horn | horns | | | Horn | corne
horse | horses | pony | hors | Pferd | cheval
house | houses | home; cottage | hause | Haus | maison
hull | hulls | | | Rumpf | coque
hump | humps | | | Höcker | bosse
island | islands | isle | iland | Insel | île
lake | lakes | | laek | Bergsee | lac
lamp | lamps | | | Lampe | lampe
leaves | | foliage | leafs | Laub | feuilles
leg | legs | | | Bein | patte
lighthouse | lighthouses | | lighthose | Leuchtturm | phare
lorry | lorries | truck | lorrie | Lastwagen | camion
mane | manes | | | Mähne | crinière
mast | masts | | | Mast | mât
moon | moons | | mooon | Mond | lune
mountain | mountains | peak | montain; mountian | Berg | montagne
mushroom | mushrooms | toadstool | mushrom | Pilz | champignon
night | nights | night-time | nigth | Nacht | nuit
oak | oaks | oak tree | | Eiche | chêne
oar | oars | | | Ruder | rame
owl | owls | | | Eule | hibou
palm | palms | palm tree | plam | Palme | palmier
penguin | penguins | | pinguin; pengiun | Pinguin | manchot
person | people | human | persson | Mensch | personne
petal | petals | | pettal | Blütenblatt | pétale
pig | pigs | hog | | Schwein | cochon
pine | pines | fir; conifer | | Tanne | sapin
plant | plants | | plnat | Pflanze | plante
rabbit | rabbits | bunny; hare | rabit | Hase | lapin
rain | | rainy | rian | Regen | pluie
rainbow | rainbows | | rainbo | Regenbogen | arc-en-ciel
red | | | redd | rot | rouge
river | rivers | stream | rivr | Fluss | rivière
road | roads | highway | raod | Landstraße | route
rock | rocks | stone; boulder | rok | Felsen | rocher
roof | roofs | rooftop | rooof | Dach | toit
rowing boat | rowing boats | rowboat | rowingboat | Ruderboot | barque
saddle | saddles | | sadle | Sattel | selle
sail | sails | | | Segel | voile
sailboat | sailboats | yacht; sailing boat | sailbaot | Segelboot | voilier
sea | seas | ocean | | Meer | mer
sheep | | lamb | sheeep | Schaf | mouton
ship | ships | steamer; liner | shipp | Schiff | navire
sky | skies | | skye | Himmel | ciel
skyscraper | skyscrapers | high-rise | skyscrapper | Wolkenkratzer | gratte-ciel
snow | | snowy | snwo | Schnee | neige
star | stars | starry sky | | Stern | étoile
steeple | steeples | spire | steple | Kirchturm | clocher
stem | stems | stalk | | Stiel | tige
street | streets | pavement | stret | Gasse | rue
sun | suns | sunny | | Sonne | soleil
sunflower | sunflowers | | sunflowr | Sonnenblume | tournesol
sunset | sunsets | dusk; sundown | sunest | Sonnenuntergang | coucher de soleil
tail | tails | | | Schwanz | queue
tent | tents | camping | | Zelt | tente
tower | towers | | towr | Turm | tour
trailer | trailers | | trailor | Anhänger | remorque
train | trains | railway; locomotive | trian | Zug | train
tree | trees | | treee | Baum | arbre
trunk | trunks | | trunck | Stamm | tronc
tulip | tulips | | tullip | Tulpe | tulipe
tusk | tusks | | | Stoßzahn | défense
vehicle | vehicles | | vehical | Fahrzeug | véhicule
water | waters | | watter | Wasser | eau
wave | waves | surf | | Welle | vague
wheel | wheels | | weel | Rad | roue
white | | | wite | weiß | blanc
windmill | windmills | | windmil | Windmühle | moulin à vent
window | windows | | windwo | Fenster | fenêtre
wing | wings | | | Flügel | aile
winter | winters | wintry | wintre | Winterzeit | hiver
yellow | | | yelow | gelb | jaune
"""


@dataclass(frozen=True, slots=True)
class Spellings:
    """How people write one true tag; fields may be empty."""

    plural: str
    synonyms: tuple[str, ...]
    misspellings: tuple[str, ...]
    german: str
    french: str

    def all(self) -> tuple[str, ...]:
        """Return every spelling, without repetition and without the true one unless a language shares it."""
        words = (self.plural, *self.synonyms, *self.misspellings, self.german, self.french)
        return tuple(dict.fromkeys(word for word in words if word))


def _read(table: str) -> dict[str, Spellings]:
    spellings = {}
    for line in table.strip().splitlines():
        tag, plural, synonyms, misspellings, german, french = (cell.strip() for cell in line.split("|"))
        several = [tuple(word.strip() for word in cell.split(";") if word.strip()) for cell in (synonyms, misspellings)]
        spellings[tag] = Spellings(plural, several[0], several[1], german, french)
    return spellings


SPELLINGS: dict[str, Spellings] = _read(_TABLE)
"""The spellings of every true tag."""

GROUPS: dict[str, str] = {tag: tag for tag in SPELLINGS} | {
    word.casefold(): tag for tag, spellings in SPELLINGS.items() for word in spellings.all()
}
"""From every spelling, case-folded, to its true tag; no spelling belongs to two tags."""
